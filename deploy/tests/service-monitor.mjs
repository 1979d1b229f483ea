// Reads ServiceMonitors as a JSON array, and writes for each the validation error from the Prometheus operator's
// schema, or null.
import { readFileSync } from "node:fs";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";

const said = JSON.parse(readFileSync(0, "utf8")).map((monitor) => {
  try {
    new ServiceMonitor(monitor).validate();
    return null;
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify(said));
