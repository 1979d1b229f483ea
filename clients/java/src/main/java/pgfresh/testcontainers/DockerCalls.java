package pgfresh.testcontainers;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * Calls of Testcontainers' class that are about Docker: some have no effect, the others throw {@link
 * UnsupportedOperationException}. Parameters of its own types are objects here.
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

    private static UnsupportedOperationException unsupported(String call, String hint) {
        return new UnsupportedOperationException("pgfresh does not support " + call + "\nHINT:  " + hint);
    }

    // Without effect: pgfresh starts within milliseconds, in RAM, and pulls no image. A database is never reused.

    public SELF withStartupTimeout(Duration timeout) {
        return self();
    }

    public SELF withStartupTimeoutSeconds(int seconds) {
        return self();
    }

    public SELF withConnectTimeoutSeconds(int seconds) {
        return self();
    }

    public SELF withStartupAttempts(int attempts) {
        return self();
    }

    public SELF withMinimumRunningDuration(Duration duration) {
        return self();
    }

    public SELF withLabel(String key, String value) {
        return self();
    }

    public SELF withLabels(Map<String, String> labels) {
        return self();
    }

    public SELF withTmpFs(Map<String, String> mapping) {
        return self();
    }

    public SELF withSharedMemorySize(Long bytes) {
        return self();
    }

    public SELF withImagePullPolicy(Object policy) {
        return self();
    }

    public SELF waitingFor(Object strategy) {
        return self();
    }

    public SELF withStartupCheckStrategy(Object strategy) {
        return self();
    }

    public SELF withReuse(boolean reusable) {
        return self();
    }

    public SELF withPrivilegedMode(boolean mode) {
        return self();
    }

    // Not supported.

    public SELF withCommand(String command) {
        throw unsupported("withCommand", SETTINGS);
    }

    public SELF withCommand(String... parts) {
        throw unsupported("withCommand", SETTINGS);
    }

    public void setCommand(String... parts) {
        throw unsupported("setCommand", SETTINGS);
    }

    public SELF withEnv(String key, String value) {
        throw unsupported("withEnv", SETTINGS);
    }

    public SELF withEnv(Map<String, String> variables) {
        throw unsupported("withEnv", SETTINGS);
    }

    public void addEnv(String key, String value) {
        throw unsupported("addEnv", SETTINGS);
    }

    public SELF withCreateContainerCmdModifier(Object modifier) {
        throw unsupported("withCreateContainerCmdModifier", SETTINGS);
    }

    public SELF withNetwork(Object network) {
        throw unsupported("withNetwork", NETWORK);
    }

    public SELF withNetworkAliases(String... aliases) {
        throw unsupported("withNetworkAliases", NETWORK);
    }

    public SELF withNetworkMode(String mode) {
        throw unsupported("withNetworkMode", NETWORK);
    }

    public SELF withExtraHost(String name, String address) {
        throw unsupported("withExtraHost", NETWORK);
    }

    public SELF withAccessToHost(boolean access) {
        throw unsupported("withAccessToHost", NETWORK);
    }

    public Object getNetwork() {
        throw unsupported("getNetwork", NETWORK);
    }

    public List<String> getNetworkAliases() {
        throw unsupported("getNetworkAliases", NETWORK);
    }

    public SELF withFileSystemBind(String from, String to) {
        throw unsupported("withFileSystemBind", TEMPLATE);
    }

    public SELF withFileSystemBind(String from, String to, Object mode) {
        throw unsupported("withFileSystemBind", TEMPLATE);
    }

    public SELF withVolumesFrom(Object container, Object mode) {
        throw unsupported("withVolumesFrom", TEMPLATE);
    }

    public SELF withClasspathResourceMapping(String resource, String to, Object mode) {
        throw unsupported("withClasspathResourceMapping", TEMPLATE);
    }

    public SELF withCopyFileToContainer(Object file, String to) {
        throw unsupported("withCopyFileToContainer", TEMPLATE);
    }

    public SELF withCopyToContainer(Object content, String to) {
        throw unsupported("withCopyToContainer", TEMPLATE);
    }

    public void copyFileToContainer(Object file, String to) {
        throw unsupported("copyFileToContainer", TEMPLATE);
    }

    public SELF withWorkingDirectory(String directory) {
        throw unsupported("withWorkingDirectory", PROCESS);
    }

    public SELF dependsOn(Object... others) {
        throw unsupported("dependsOn", PROCESS);
    }

    public void copyFileFromContainer(String from, String to) {
        throw unsupported("copyFileFromContainer", PROCESS);
    }

    public Object execInContainer(String... command) {
        throw unsupported("execInContainer", PROCESS);
    }

    public Object execInContainerWithUser(String user, String... command) {
        throw unsupported("execInContainerWithUser", PROCESS);
    }

    public String getContainerId() {
        throw unsupported("getContainerId", PROCESS);
    }

    public String getContainerName() {
        throw unsupported("getContainerName", PROCESS);
    }

    public Object getContainerInfo() {
        throw unsupported("getContainerInfo", PROCESS);
    }

    public Object getCurrentContainerInfo() {
        throw unsupported("getCurrentContainerInfo", PROCESS);
    }

    public Object getDockerClient() {
        throw unsupported("getDockerClient", PROCESS);
    }

    public SELF withLogConsumer(Object consumer) {
        throw unsupported("withLogConsumer", LOG);
    }

    public void followOutput(Object consumer) {
        throw unsupported("followOutput", LOG);
    }

    public String getLogs(Object... types) {
        throw unsupported("getLogs", LOG);
    }
}
