import type { Pod } from "postern/kubernetes/core/v1";
import { get } from "postern/needs";
import { findConflict } from "postern/objects/label";
import { compareQuantities, isQuantity } from "postern/objects/quantity";
import { mergeTolerations } from "postern/objects/toleration";
import { forbidden } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import { rule } from "postern/rule";

const namesClass = "object.?spec.?runtimeClassName.hasValue()";

export default rule({
  summary: "Adds the overhead, node selector and tolerations of a pod's RuntimeClass to the pod.",
  order: 24,
  upstreamPlugin: { plugin: "RuntimeClass" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  matchConditions: {
    mutate: { "names-a-class": namesClass },
    validate: { "names-a-class-or-has-overhead": `${namesClass} || object.?spec.?overhead.hasValue()` },
  },
  needs: {
    // The RuntimeClass is read without the cache: a pod keeps the overhead and node selector of the class.
    current: get("runtimeclasses", { maxAge: 0 }),
    recent: get("runtimeclasses"),
  },

  async mutate({ spec }: Pod, { request, current }) {
    if (spec?.runtimeClassName === undefined) return;
    const runtimeClass = await current({ name: spec.runtimeClassName });
    if (runtimeClass === undefined) return refuseMissingClass(request, spec.runtimeClassName);

    const { overhead, scheduling } = runtimeClass;
    if (overhead) {
      const { podFixed = {} } = overhead;
      const podOverhead = spec.overhead ?? {};
      if (Object.keys(podOverhead).length > 0 && !haveSameAmounts(podOverhead, podFixed))
        return refuseOverhead(request);
      spec.overhead = podFixed;
    }
    if (scheduling) {
      const podSelector = spec.nodeSelector ?? {};
      const nodes = scheduling.nodeSelector ?? {};
      const key = findConflict(nodes, podSelector);
      if (key !== undefined) return refuseNodes(request, key, nodes[key], podSelector[key]);
      if (Object.keys(nodes).length > 0) spec.nodeSelector = { ...podSelector, ...nodes };

      const tolerations = mergeTolerations(spec.tolerations ?? [], scheduling.tolerations ?? []);
      if (tolerations.length > 0) spec.tolerations = tolerations;
    }
  },

  async validate({ spec }: Pod, { request, recent }) {
    const name = spec?.runtimeClassName;
    const runtimeClass = name === undefined ? undefined : await recent({ name });
    if (name !== undefined && runtimeClass === undefined) return refuseMissingClass(request, name);

    const podFixed = runtimeClass?.overhead && (runtimeClass.overhead.podFixed ?? {});
    if (podFixed && !haveSameAmounts(spec?.overhead ?? {}, podFixed)) return refuseOverhead(request);
    if (!podFixed && spec?.overhead)
      return rejectPod(request, "Pod Overhead set without corresponding RuntimeClass defined Overhead");
  },

  async suggest({ spec }: Pod, { current }) {
    const name = spec?.runtimeClassName;
    const runtimeClass = name === undefined ? undefined : await current({ name });
    if (name !== undefined && !runtimeClass)
      return `create the RuntimeClass ${JSON.stringify(name)} first, or use an existing one`;
    if (!spec) return;
    const { podFixed = {} } = runtimeClass?.overhead ?? {};
    if (spec.overhead && Object.keys(podFixed).length > 0) spec.overhead = podFixed;
    else delete spec.overhead;
    const { nodeSelector = {} } = runtimeClass?.scheduling ?? {};
    if (findConflict(nodeSelector, spec.nodeSelector ?? {}) !== undefined)
      spec.nodeSelector = { ...spec.nodeSelector, ...nodeSelector };
  },
});

type Quantities = Record<string, string>;

const haveSameAmounts = (left: Quantities, right: Quantities) =>
  Object.keys(left).length === Object.keys(right).length &&
  Object.entries(left).every(([key, value]) => Object.hasOwn(right, key) && isSameAmount(value, right[key] ?? ""));

const isSameAmount = (left: string, right: string) =>
  left === right || (isQuantity(left) && isQuantity(right) && compareQuantities(left, right) === 0);

const refuseRequest = (request: AdmissionRequest, text: string) => ({ refuse: forbidden(request, text) });
const rejectPod = (request: AdmissionRequest, text: string) => refuseRequest(request, `pod rejected: ${text}`);
const refuseMissingClass = (request: AdmissionRequest, name: string) =>
  rejectPod(request, `RuntimeClass ${JSON.stringify(name)} not found`);
const refuseOverhead = (request: AdmissionRequest) =>
  rejectPod(request, "Pod's Overhead doesn't match RuntimeClass's defined Overhead");
const refuseNodes = (request: AdmissionRequest, key: string, wanted: string | undefined, set: string | undefined) =>
  refuseRequest(
    request,
    `conflict: runtimeClass.scheduling.nodeSelector[${key}] = ${wanted}; pod.spec.nodeSelector[${key}] = ${set}`,
  );
