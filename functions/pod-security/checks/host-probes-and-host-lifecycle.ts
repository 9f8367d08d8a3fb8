import type { Container } from "kubernetes-types/core/v1.d.ts";
import { type Check, type Judge, namesOf } from "./check.ts";
import { listed, plural, quoted, sorted } from "./wording.ts";

/** The kubelet asks from the node; it shall ask the pod alone. */
const judge: Judge = ({ containers }) => {
  const askers = containers.filter((container) => hostsOf(container).length > 0);
  if (askers.length === 0) return undefined;

  const names = sorted(namesOf(askers));
  const hosts = sorted(askers.flatMap(hostsOf));
  const use = plural(names.length, "uses", "use");
  return {
    reason: "probe or lifecycle host",
    detail: `${listed("container", names)} ${use} ${plural(hosts.length, "probe or lifecycle host")} ${quoted(hosts)}`,
  };
};

const hostsOf = ({ livenessProbe, readinessProbe, startupProbe, lifecycle }: Container) =>
  [livenessProbe, readinessProbe, startupProbe, lifecycle?.postStart, lifecycle?.preStop]
    .flatMap((action) => [action?.httpGet?.host ?? "", action?.tcpSocket?.host ?? ""])
    .filter((host) => host !== "");

export const hostProbesAndHostLifecycle: Check = { level: "baseline", since: { "1.34": judge } };
