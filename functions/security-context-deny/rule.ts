import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { containersIn, containersOf } from "postern/objects/pod";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

/** The fields that are refused, and what upstream calls them, in its order. */
const ofContainers = { seLinuxOptions: "SELinuxOptions", runAsUser: "RunAsUser" };
const ofPods = { supplementalGroups: "SupplementalGroups", ...ofContainers, fsGroup: "FSGroup" };

const judged = containersIn("object", ["initContainers", "containers"]);

export default rule({
  summary: "Lets no pod choose its user, its groups or its SELinux options.",
  match: ({ createOnly }) => [
    {
      apiGroups: [""],
      apiVersions: ["v1"],
      resources: ["pods"],
      operations: createOnly ? ["CREATE"] : ["CREATE", "UPDATE"],
    },
  ],
  matchConditions: {
    // A condition that costs the API server too much fails, open or closed: a large pod is judged here.
    "chooses-for-itself": `size(${judged}) > 50 ||
      ${fieldIn(ofPods, "object.?spec.?securityContext")} ||
      ${judged}.exists(c, ${fieldIn(ofContainers, "c.?securityContext")})`,
  },
  settings: { createOnly: false },
  guards: true,

  validate(pod: Pod, { request, settings }) {
    if (settings.createOnly && request.operation !== "CREATE") return;

    const [first] = [
      ...offences(ofPods, pod.spec?.securityContext).map((offence) => `pod.Spec.${offence}`),
      ...containersOf(pod, ["initContainers", "containers"]).flatMap(({ container }) =>
        offences(ofContainers, container.securityContext),
      ),
    ];
    if (first) return { refuse: forbidden(request, first, pod.metadata?.name ?? "") };
  },

  suggest(pod: Pod, { request }) {
    // Of a pod that is there, it can't be changed.
    if (request.operation !== "CREATE") return;
    const leaveOut = (fields: object, context: object = {}) => {
      for (const field of Object.keys(fields)) Reflect.deleteProperty(context, field);
    };
    leaveOut(ofPods, pod.spec?.securityContext);
    for (const { container } of containersOf(pod, ["initContainers", "containers"]))
      leaveOut(ofContainers, container.securityContext);
  },
});

/** Any value offends, 0 and empty ones too. */
const offences = (fields: object, context: object = {}) =>
  Object.entries(fields)
    .filter(([field]) => field in context)
    .map(([, name]) => `SecurityContext.${name} is forbidden`);

/** Whether one is there, in CEL. */
function fieldIn(fields: object, context: string) {
  return `${JSON.stringify(Object.keys(fields))}.exists(field, field in ${context}.orValue({}))`;
}
