import { capabilitiesBaseline } from "./capabilities-baseline.ts";
import { type Check, contextOf, type Judge, namesOf, unlessOnWindows } from "./check.ts";
import { listed, quoted, sorted } from "./wording.ts";

const judge: Judge = ({ containers }) => {
  const keeping = containers.filter((container) => !capabilitiesOf(container).drop?.includes("ALL"));
  const adding = containers.filter((container) => forbiddenOf(container).length > 0);
  const found = [
    ...(keeping.length > 0
      ? [`${listed("container", namesOf(keeping))} must set securityContext.capabilities.drop=["ALL"]`]
      : []),
    ...(adding.length > 0
      ? [
          `${listed("container", namesOf(adding))} must not include ${quoted(sorted(adding.flatMap(forbiddenOf)))} in securityContext.capabilities.add`,
        ]
      : []),
  ];
  if (found.length > 0) return { reason: "unrestricted capabilities", detail: found.join("; ") };
};

const capabilitiesOf = (container: Parameters<typeof contextOf>[0]) => contextOf(container).capabilities ?? {};
const forbiddenOf = (container: Parameters<typeof contextOf>[0]) =>
  (capabilitiesOf(container).add ?? []).filter((capability) => capability !== "NET_BIND_SERVICE");

export const capabilitiesRestricted: Check = {
  level: "restricted",
  since: { "1.22": judge, "1.25": unlessOnWindows(judge) },
  insteadOf: capabilitiesBaseline,
};
