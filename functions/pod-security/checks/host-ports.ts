import type { Container } from "kubernetes-types/core/v1.d.ts";
import { type Check, type Judge, namesOf } from "./check.ts";
import { listed, plural, sorted } from "./wording.ts";

const judge: Judge = ({ containers }) => {
  const users = containers.filter((container) => hostPortsOf(container).length > 0);
  if (users.length === 0) return undefined;

  const ports = sorted(users.flatMap(hostPortsOf));
  const use = plural(users.length, "uses", "use");
  return {
    reason: "hostPort",
    detail: `${listed("container", namesOf(users))} ${use} ${plural(ports.length, "hostPort")} ${ports.join(", ")}`,
  };
};

const hostPortsOf = ({ ports }: Container) =>
  (ports ?? []).flatMap(({ hostPort }) => (hostPort ? [String(hostPort)] : []));

export const hostPorts: Check = { level: "baseline", since: { "1.0": judge } };
