package pgfresh.testcontainers;

/**
 * Name of an image, which a suite for Testcontainers passes to {@link PostgreSQLContainer}. pgfresh uses no image.
 *
 * @param name name with its tag, as the suite wrote it
 */
public record DockerImageName(String name) {

    public static DockerImageName parse(String name) {
        return new DockerImageName(name);
    }

    public DockerImageName withTag(String tag) {
        return new DockerImageName(name.replaceFirst("(:[^:/]*)?$", ":" + tag));
    }

    public DockerImageName asCompatibleSubstituteFor(String other) {
        return this;
    }

    public DockerImageName asCompatibleSubstituteFor(DockerImageName other) {
        return this;
    }

    public String asCanonicalNameString() {
        return name;
    }

    @Override
    public String toString() {
        return name;
    }
}
