import type { Check, Judge } from "./check.ts";

const judge: Judge = ({ spec }) => {
  const shared = (["hostNetwork", "hostPID", "hostIPC"] as const).filter((field) => spec[field] === true);
  if (shared.length > 0)
    return { reason: "host namespaces", detail: shared.map((field) => `${field}=true`).join(", ") };
};

export const hostNamespaces: Check = { level: "baseline", since: { "1.0": judge } };
