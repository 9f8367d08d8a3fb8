import type { Check, Judge } from "./check.ts";
import { listed } from "./wording.ts";

const judge: Judge = ({ spec }) => {
  const names = (spec.volumes ?? []).filter(({ hostPath }) => hostPath).map(({ name = "" }) => name);
  if (names.length > 0) return { reason: "hostPath volumes", detail: listed("volume", names) };
};

export const hostPathVolumes: Check = { level: "baseline", since: { "1.0": judge } };
