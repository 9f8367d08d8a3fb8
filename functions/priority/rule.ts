import type { Pod } from "postern/kubernetes/core/v1";
import type { PriorityClass } from "postern/kubernetes/scheduling/v1";
import { get, list } from "postern/needs";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

/** The rule's object: a pod in `mutate`, a PriorityClass in `validate`. */
type PodAndPriorityClass = Pod & PriorityClass;

export default rule({
  summary: "Sets the priority of a pod from its PriorityClass, and refuses a second default class.",
  order: 14,
  upstreamPlugin: { plugin: "Priority" },
  match: {
    mutate: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
    validate: [
      {
        apiGroups: ["scheduling.k8s.io"],
        apiVersions: ["v1"],
        resources: ["priorityclasses"],
        operations: ["CREATE", "UPDATE"],
      },
    ],
  },
  matchConditions: {
    mutate: {
      "is-new-or-lost-its-priority": `oldObject == null || ["priority", "preemptionPolicy"].exists(field,
        has(oldObject.spec) && field in oldObject.spec && !(has(object.spec) && field in object.spec))`,
    },
    validate: { "is-to-be-the-default": "object.?globalDefault.orValue(false) == true" },
  },
  needs: {
    // Classes are read without the cache: a wrong priority or a second default class would stay in the cluster.
    class: get("priorityclasses", { maxAge: 0 }),
    classes: list("priorityclasses", { maxAge: 0 }),
  },

  async mutate({ spec }: PodAndPriorityClass, { request, oldObject, ...needs }) {
    if (!spec) return;
    if (request.operation === "UPDATE") {
      const { priority, preemptionPolicy } = oldObject?.spec ?? {};
      if (spec.priority === undefined && priority !== undefined) spec.priority = priority;
      if (spec.preemptionPolicy === undefined && preemptionPolicy !== undefined)
        spec.preemptionPolicy = preemptionPolicy;
      return;
    }

    const refuseRequest = (text: string) => ({ refuse: forbidden(request, text) });
    const name = spec.priorityClassName;
    const priorityClass = name ? await needs.class({ name }) : findDefault(await needs.classes());
    if (name && !priorityClass) return refuseRequest(`no PriorityClass with name ${name} was found`);

    const { value: priority, preemptionPolicy } = priorityClass ?? {
      value: 0,
      preemptionPolicy: "PreemptLowerPriority",
    };
    const describeComputed = (value: unknown) =>
      `must not be provided in pod spec; priority admission controller computed ${value} from the given PriorityClass name`;
    if (spec.priority !== undefined && spec.priority !== priority)
      return refuseRequest(`the integer value of priority (${spec.priority}) ${describeComputed(priority)}`);
    if (preemptionPolicy && spec.preemptionPolicy !== undefined && spec.preemptionPolicy !== preemptionPolicy)
      return refuseRequest(
        `the string value of PreemptionPolicy (${spec.preemptionPolicy}) ${describeComputed(preemptionPolicy)}`,
      );

    if (!name && priorityClass?.metadata?.name) spec.priorityClassName = priorityClass.metadata.name;
    spec.priority = priority;
    if (preemptionPolicy) spec.preemptionPolicy = preemptionPolicy;
  },

  async validate({ globalDefault, metadata }: PodAndPriorityClass, { request, classes }) {
    if (!globalDefault) return;
    const name = findDefault(await classes())?.metadata?.name;
    if (name === undefined || (request.operation === "UPDATE" && name === metadata?.name)) return;
    return {
      refuse: forbidden(request, `PriorityClass ${name} is already marked as default. Only one default can exist`),
    };
  },

  async suggest(object: PodAndPriorityClass, { request, ...needs }) {
    if (request.resource.resource === "priorityclasses") {
      delete object.globalDefault;
      return;
    }
    const { spec } = object;
    const name = spec?.priorityClassName;
    if (name && !(await needs.class({ name }))) {
      const names = (await needs.classes()).flatMap(({ metadata }) => metadata?.name ?? []);
      const others = names.filter((other) => !other.startsWith("system-")).slice(0, 3);
      const instead = others.length > 0 ? `, or use an existing one, such as ${others.join(", ")}` : "";
      return `create the PriorityClass ${JSON.stringify(name)} first${instead}`;
    }
    delete spec?.priority;
    delete spec?.preemptionPolicy;
  },
});

/** Returns the default PriorityClass. If concurrent requests created several, it is the one with the lowest value. */
const findDefault = (classes: readonly PriorityClass[]): PriorityClass | undefined =>
  classes.filter(({ globalDefault }) => globalDefault).sort((left, right) => (left.value ?? 0) - (right.value ?? 0))[0];
