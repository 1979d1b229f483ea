package pgfresh;

import java.util.List;

/**
 * Requested fault, with the statements that it hit.
 *
 * @param text description of the fault: {@code 40001 at commit}
 * @param times how often the fault is to fire
 * @param fired how often the fault has fired
 * @param candidates number of statements, commits or connections that the fault could have hit
 * @param statements statements that the fault hit, at most 100
 */
public record FaultStatus(String text, long times, long fired, long candidates, List<String> statements) {

    static FaultStatus of(Json description) {
        return new FaultStatus(
                description.text("fault"),
                (long) description.number("times"),
                (long) description.number("fired"),
                (long) description.number("candidates"),
                description.texts("statements"));
    }

    /** Returns a line for each fault in a response that never fired, or "" if all faults fired. */
    static String unfired(Json answer) {
        List<String> faults = answer.texts("unfired_faults");
        return String.join("\n", faults.stream().map(fault -> "fault did not fire: " + fault).toList());
    }
}
