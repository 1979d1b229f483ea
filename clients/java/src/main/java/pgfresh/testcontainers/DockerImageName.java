package pgfresh.testcontainers;

/**
 * Image name that a Testcontainers suite passes to {@link PostgreSQLContainer}. pgfresh doesn't use images.
 *
 * @param name name and tag, as written in the suite
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
