import { isMap } from "#lib/json.ts";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import type { Capabilities } from "#lib/needs.ts";
import { listContainers } from "#lib/objects/pod.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";

type Quota = KubernetesObject & { spec?: { hard?: unknown }; status?: { hard?: unknown; used?: unknown } };

/** More than any object uses. */
const unlimited = "8E";

const isCounted = ({ spec, status }: Quota): boolean =>
  Object.keys(Object(spec?.hard)).every((name) => Object.hasOwn(Object(status?.used), name));

/** Returns the creation of a Pod with zero for each amount that a quota of these names demands: an older Pod may lack it. */
const fillZeros = (request: AdmissionRequest, names: readonly string[]): AdmissionRequest => {
  if (request.kind.group !== "" || request.kind.kind !== "Pod") return request;
  const pod = structuredClone(request.object) as Pod;
  for (const { container } of listContainers(pod, ["containers", "initContainers"]))
    for (const name of names) {
      const [, kind = "requests", resource] = /^(?:(requests|limits)\.)?(cpu|memory)$/.exec(name) ?? [];
      if (resource === undefined) continue;
      container.resources ??= {};
      const amounts = { ...container.resources[kind as "requests" | "limits"] };
      container.resources[kind as "requests" | "limits"] = { [resource]: "0", ...amounts };
    }
  return { ...request, object: pod as KubernetesObject };
};

/**
 * Returns capabilities that list each quota with a status: where it has none, with what the objects of its namespace
 * use, as the quota controller counts it. `charge` is the plugin, which charges a creation to the quotas that it is
 * given; it resolves to false if it refuses.
 */
export const countUnknownQuotas = (
  capabilities: Capabilities,
  listCreations: (namespace: string) => readonly AdmissionRequest[],
  charge: (request: AdmissionRequest, capabilities: Capabilities) => Promise<boolean>,
  tell: (sentence: string) => void,
): Capabilities => {
  const count = async (kind: Parameters<Capabilities["list"]>[0], quota: Quota): Promise<KubernetesObject> => {
    const { name = "", namespace = "" } = quota.metadata ?? {};
    const hard = isMap(quota.spec?.hard) ? quota.spec.hard : {};
    const fill = (value: string) => Object.fromEntries(Object.keys(hard).map((key) => [key, value]));
    let counted: Quota = { ...quota, status: { hard: fill(unlimited), used: fill("0") } };
    const counting: Capabilities = {
      ...capabilities,
      list: async (asked, ...more) =>
        asked.resource === kind.resource && asked.group === kind.group ? [counted] : capabilities.list(asked, ...more),
      updateStatus: async (_, changed) => {
        counted = changed;
        return "updated";
      },
    };
    for (const request of listCreations(namespace))
      if (!(await charge(fillZeros(request, Object.keys(hard)), counting)))
        tell(`what quota ${name} of namespace ${namespace} has in use; its status in --state would say it`);
    const whole = { ...quota, status: { hard, used: counted.status?.used } };
    await capabilities.updateStatus(kind, whole);
    return whole;
  };
  return {
    ...capabilities,
    list: async (kind, ...more) => {
      const listed = await capabilities.list(kind, ...more);
      if (kind.group !== "" || kind.resource !== "resourcequotas") return listed;
      const quotas: KubernetesObject[] = [];
      for (const quota of listed) quotas.push(isCounted(quota) ? quota : await count(kind, quota));
      return quotas;
    },
  };
};
