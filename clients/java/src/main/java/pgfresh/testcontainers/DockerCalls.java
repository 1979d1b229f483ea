package pgfresh.testcontainers;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * Methods of Testcontainers' class that concern Docker. Some have no effect, the others throw {@link
 * UnsupportedOperationException}. Parameters whose types belong to Testcontainers are {@link Object}s here.
 */
abstract class DockerCalls<SELF extends DockerCalls<SELF>> {

    private static final String SETTINGS = "Set the option in [postgres] of pgfresh.toml.";
    private static final String TEMPLATE = "Put it into the template: sql or setup in pgfresh.toml.";
    private static final String NETWORK = "Programs in containers reach the server by \"pgfresh serve --listen\".";
    private static final String PROCESS = "The server is a process of this machine: use the JDBC URL.";
    private static final String LOG = "\"pgfresh status\" prints the path of the log.";

    @SuppressWarnings("unchecked")
    final SELF self() {
        return (SELF) this;
    }

    /** Returns an exception that names the calling method. */
    private static UnsupportedOperationException unsupported(String hint) {
        String call = StackWalker.getInstance().walk(frames -> frames.skip(1).findFirst().orElseThrow().getMethodName());
        return new UnsupportedOperationException("pgfresh does not support " + call + "\nHINT:  " + hint);
    }

    // These methods have no effect: pgfresh starts in RAM within milliseconds, doesn't pull an image, and never
    // reuses a database.

    public SELF withStartupTimeout(Duration timeout) { return self(); }
    public SELF withStartupTimeoutSeconds(int seconds) { return self(); }
    public SELF withConnectTimeoutSeconds(int seconds) { return self(); }
    public SELF withStartupAttempts(int attempts) { return self(); }
    public SELF withMinimumRunningDuration(Duration duration) { return self(); }
    public SELF withLabel(String key, String value) { return self(); }
    public SELF withLabels(Map<String, String> labels) { return self(); }
    public SELF withTmpFs(Map<String, String> mapping) { return self(); }
    public SELF withSharedMemorySize(Long bytes) { return self(); }
    public SELF withImagePullPolicy(Object policy) { return self(); }
    public SELF waitingFor(Object strategy) { return self(); }
    public SELF withStartupCheckStrategy(Object strategy) { return self(); }
    public SELF withReuse(boolean reusable) { return self(); }
    public SELF withPrivilegedMode(boolean mode) { return self(); }

    // These methods aren't supported.

    public SELF withCommand(String command) { throw unsupported(SETTINGS); }
    public SELF withCommand(String... parts) { throw unsupported(SETTINGS); }
    public void setCommand(String... parts) { throw unsupported(SETTINGS); }
    public SELF withEnv(String key, String value) { throw unsupported(SETTINGS); }
    public SELF withEnv(Map<String, String> variables) { throw unsupported(SETTINGS); }
    public void addEnv(String key, String value) { throw unsupported(SETTINGS); }
    public SELF withCreateContainerCmdModifier(Object modifier) { throw unsupported(SETTINGS); }

    public SELF withNetwork(Object network) { throw unsupported(NETWORK); }
    public SELF withNetworkAliases(String... aliases) { throw unsupported(NETWORK); }
    public SELF withNetworkMode(String mode) { throw unsupported(NETWORK); }
    public SELF withExtraHost(String name, String address) { throw unsupported(NETWORK); }
    public SELF withAccessToHost(boolean access) { throw unsupported(NETWORK); }
    public Object getNetwork() { throw unsupported(NETWORK); }
    public List<String> getNetworkAliases() { throw unsupported(NETWORK); }

    public SELF withFileSystemBind(String from, String to) { throw unsupported(TEMPLATE); }
    public SELF withFileSystemBind(String from, String to, Object mode) { throw unsupported(TEMPLATE); }
    public SELF withVolumesFrom(Object container, Object mode) { throw unsupported(TEMPLATE); }
    public SELF withClasspathResourceMapping(String resource, String to, Object mode) { throw unsupported(TEMPLATE); }
    public SELF withCopyFileToContainer(Object file, String to) { throw unsupported(TEMPLATE); }
    public SELF withCopyToContainer(Object content, String to) { throw unsupported(TEMPLATE); }
    public void copyFileToContainer(Object file, String to) { throw unsupported(TEMPLATE); }

    public SELF withWorkingDirectory(String directory) { throw unsupported(PROCESS); }
    public SELF dependsOn(Object... others) { throw unsupported(PROCESS); }
    public void copyFileFromContainer(String from, String to) { throw unsupported(PROCESS); }
    public Object execInContainer(String... command) { throw unsupported(PROCESS); }
    public Object execInContainerWithUser(String user, String... command) { throw unsupported(PROCESS); }
    public String getContainerId() { throw unsupported(PROCESS); }
    public String getContainerName() { throw unsupported(PROCESS); }
    public Object getContainerInfo() { throw unsupported(PROCESS); }
    public Object getCurrentContainerInfo() { throw unsupported(PROCESS); }
    public Object getDockerClient() { throw unsupported(PROCESS); }

    public SELF withLogConsumer(Object consumer) { throw unsupported(LOG); }
    public void followOutput(Object consumer) { throw unsupported(LOG); }
    public String getLogs(Object... types) { throw unsupported(LOG); }
}
