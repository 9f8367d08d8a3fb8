import type { Pod } from "postern/kubernetes/core/v1";
import { listContainers, listContainersInCel } from "postern/objects/pod";
import { rule } from "postern/rule";
import { type DefaultResourceSettings, findSettingsFault, selectMissingDefaults } from "./amounts.ts";

const settings: DefaultResourceSettings = { requests: {}, limits: {}, initContainers: true };

export default rule({
  summary: "Sets default requests and limits in containers that set none.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  matchConditions: ({ requests, limits }: DefaultResourceSettings) => ({
    // A container with a limit for a resource `r` lacks nothing: Kubernetes sets a missing request to the limit.
    // Without a limit, it lacks an amount if there is a default limit for `r`, or if it has no request for `r`.
    "some-container-lacks-one": `${listContainersInCel("object", ["initContainers", "containers"])}.exists(c,
      ${JSON.stringify(Object.keys({ ...requests, ...limits }))}.exists(r, !(r in c.?resources.?limits.orValue({})) &&
        (r in ${JSON.stringify(Object.keys(limits))} || !(r in c.?resources.?requests.orValue({})))))`,
  }),
  settings,
  checkSettings: findSettingsFault,

  mutate(pod: Pod, { settings }) {
    const init = listContainers(pod, ["initContainers"]).filter(
      ({ container }) => settings.initContainers || container.restartPolicy === "Always",
    );
    for (const { container } of [...init, ...listContainers(pod, ["containers"])]) {
      const missing = selectMissingDefaults(container.resources ?? {}, pod.spec?.resources ?? {}, settings);
      for (const kind of ["requests", "limits"] as const)
        if (Object.keys(missing[kind]).length > 0)
          container.resources = {
            ...container.resources,
            [kind]: { ...container.resources?.[kind], ...missing[kind] },
          };
    }
  },
});
