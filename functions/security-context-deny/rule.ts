import type { Pod } from "postern/kubernetes/core/v1";
import { listContainers, listContainersInCel } from "postern/objects/pod";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

/** The refused fields with upstream's names, in upstream's order. */
const containerFields = { seLinuxOptions: "SELinuxOptions", runAsUser: "RunAsUser" };
const podFields = { supplementalGroups: "SupplementalGroups", ...containerFields, fsGroup: "FSGroup" };

const containers = listContainersInCel("object", ["initContainers", "containers"]);

export default rule({
  summary: "Refuses pods that set their own user, groups or SELinux options.",
  match: ({ createOnly }) => [
    {
      apiGroups: [""],
      apiVersions: ["v1"],
      resources: ["pods"],
      operations: createOnly ? ["CREATE"] : ["CREATE", "UPDATE"],
    },
  ],
  matchConditions: {
    // A CEL condition that exceeds the API server's cost limit is an error. So the API server calls the rule for each
    // pod with more than 50 containers, and the rule itself checks such pods.
    "chooses-for-itself": `size(${containers}) > 50 ||
      ${buildFieldCondition(podFields, "object.?spec.?securityContext")} ||
      ${containers}.exists(c, ${buildFieldCondition(containerFields, "c.?securityContext")})`,
  },
  settings: { createOnly: false },
  guards: true, // a security rule: hardening makes it fail closed

  validate(pod: Pod, { request, settings }) {
    if (settings.createOnly && request.operation !== "CREATE") return;

    const [first] = [
      ...listOffences(podFields, pod.spec?.securityContext).map((offence) => `pod.Spec.${offence}`),
      ...listContainers(pod, ["initContainers", "containers"]).flatMap(({ container }) =>
        listOffences(containerFields, container.securityContext),
      ),
    ];
    if (first) return { refuse: forbidden(request, first, pod.metadata?.name ?? "") };
  },

  suggest(pod: Pod, { request }) {
    // There is nothing to suggest on UPDATE: the security context of an existing pod can't be changed.
    if (request.operation !== "CREATE") return;
    const deleteFields = (fields: object, context: object = {}) => {
      for (const field of Object.keys(fields)) Reflect.deleteProperty(context, field);
    };
    deleteFields(podFields, pod.spec?.securityContext);
    for (const { container } of listContainers(pod, ["initContainers", "containers"]))
      deleteFields(containerFields, container.securityContext);
  },
});

/** Returns a sentence for each of these fields that is set, even to 0 or an empty value. */
const listOffences = (fields: object, context: object = {}) =>
  Object.entries(fields)
    .filter(([field]) => field in context)
    .map(([, name]) => `SecurityContext.${name} is forbidden`);

/** Returns a CEL condition that is true if one of these fields is set in a security context. */
function buildFieldCondition(fields: object, context: string) {
  return `${JSON.stringify(Object.keys(fields))}.exists(field, field in ${context}.orValue({}))`;
}
