import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { containersIn, listContainers } from "postern/objects/pod";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

/** The refused fields with upstream's names, in upstream's order. */
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
    // A condition that exceeds the API server's cost limit fails, so the rule itself checks large pods.
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
      ...listContainers(pod, ["initContainers", "containers"]).flatMap(({ container }) =>
        offences(ofContainers, container.securityContext),
      ),
    ];
    if (first) return { refuse: forbidden(request, first, pod.metadata?.name ?? "") };
  },

  suggest(pod: Pod, { request }) {
    // The security context of an existing pod can't be changed.
    if (request.operation !== "CREATE") return;
    const leaveOut = (fields: object, context: object = {}) => {
      for (const field of Object.keys(fields)) Reflect.deleteProperty(context, field);
    };
    leaveOut(ofPods, pod.spec?.securityContext);
    for (const { container } of listContainers(pod, ["initContainers", "containers"]))
      leaveOut(ofContainers, container.securityContext);
  },
});

/** Refuses any value, even 0 and empty ones. */
const offences = (fields: object, context: object = {}) =>
  Object.entries(fields)
    .filter(([field]) => field in context)
    .map(([, name]) => `SecurityContext.${name} is forbidden`);

function fieldIn(fields: object, context: string) {
  return `${JSON.stringify(Object.keys(fields))}.exists(field, field in ${context}.orValue({}))`;
}
