import type { Case } from "#lib/recording/recording.ts";

// What a plugin did that no API server has any more, row by row: there is nobody to compare its port with.

const securityContext = (securityContext: object) => ({ securityContext });
const spec = (pod: object = {}, init?: object, container: object = {}) => {
  const containers = [{ name: "c", ...container }];
  return {
    metadata: { name: "a" },
    spec: { ...pod, ...(init && { initContainers: [{ name: "i", ...init }] }), containers },
  };
};

const options = { seLinuxOptions: { level: "s0" } };
const user = { runAsUser: 1000 };
const most = { ...options, ...user, fsGroup: 1 };
const debugged = {
  metadata: { name: "a" },
  spec: {
    containers: [{ name: "c" }],
    ephemeralContainers: [{ name: "e", ...securityContext({ ...options, ...user }) }],
  },
};

/** A pod, and of which field it is refused; of none where it is admitted. */
const securityContextDeny: [string, object, string?][] = [
  [
    "groups of its own",
    spec(securityContext({ supplementalGroups: [1] })),
    "pod.Spec.SecurityContext.SupplementalGroups",
  ],
  // A webhook is not told of an empty list.
  ["an empty list of groups", spec(securityContext({ supplementalGroups: [] }))],
  ["SELinux options", spec(securityContext(options)), "pod.Spec.SecurityContext.SELinuxOptions"],
  ["a user", spec(securityContext(user)), "pod.Spec.SecurityContext.RunAsUser"],
  ["root as its user", spec(securityContext({ runAsUser: 0 })), "pod.Spec.SecurityContext.RunAsUser"],
  ["a group for its files", spec(securityContext({ fsGroup: 1 })), "pod.Spec.SecurityContext.FSGroup"],
  ["SELinux options of an init container", spec({}, securityContext(options)), "SecurityContext.SELinuxOptions"],
  ["a user of an init container", spec({}, securityContext(user)), "SecurityContext.RunAsUser"],
  ["SELinux options of a container", spec({}, {}, securityContext(options)), "SecurityContext.SELinuxOptions"],
  ["a user of a container", spec({}, {}, securityContext(user)), "SecurityContext.RunAsUser"],
  [
    "all at once",
    spec(securityContext({ supplementalGroups: [1], ...most })),
    "pod.Spec.SecurityContext.SupplementalGroups",
  ],
  ["all but groups", spec(securityContext(most)), "pod.Spec.SecurityContext.SELinuxOptions"],
  [
    "a user and a group for its files",
    spec(securityContext({ ...user, fsGroup: 1 })),
    "pod.Spec.SecurityContext.RunAsUser",
  ],
  [
    "a group for its files, and a user of an init container",
    spec(securityContext({ fsGroup: 1 }), securityContext(user)),
    "pod.Spec.SecurityContext.FSGroup",
  ],
  [
    "a user of an init container, and SELinux options of a container",
    spec({}, securityContext(user), securityContext(options)),
    "SecurityContext.RunAsUser",
  ],
  [
    "options and a user of a container",
    spec({}, {}, securityContext({ ...user, ...options })),
    "SecurityContext.SELinuxOptions",
  ],
  ["nothing", spec()],
  ["a main group", spec(securityContext({ runAsGroup: 1 }), {}, securityContext({ runAsGroup: 1 }))],
];

const refusing = (field: string) => `pods "a" is forbidden: ${field} is forbidden`;

/** Outcomes by rule, as further cases. */
export const outcomes: Record<string, Case[]> = {
  "security-context-deny": [
    ...securityContextDeny.flatMap(([chosen, validate, field]): Case[] => {
      const said = field === undefined ? { admitted: true as const } : { refused: refusing(field) };
      return [
        { name: `a pod that chooses ${chosen}`, validate, ...said },
        // There is no difference that an update would have to make.
        { name: `an update of one that chooses ${chosen}`, oldObject: validate, validate: labelled(validate), ...said },
      ];
    }),
    {
      name: "a pod that had a name made",
      validate: { ...spec(securityContext(user)), metadata: { name: "made-x7x2p", generateName: "made-" } },
      refused: 'pods "made-x7x2p" is forbidden: pod.Spec.SecurityContext.RunAsUser is forbidden',
    },
    { name: "a pod with a container to debug it", oldObject: debugged, validate: labelled(debugged), admitted: true },
    {
      name: "a container that comes to debug a pod",
      resource: "pods/ephemeralcontainers",
      oldObject: { kind: "Pod", ...spec() },
      validate: { kind: "Pod", ...debugged },
      admitted: true,
    },
    {
      name: "the status of a pod that chooses a user",
      resource: "pods/status",
      oldObject: { kind: "Pod", ...spec(securityContext(user)) },
      validate: { kind: "Pod", ...spec(securityContext(user)) },
      admitted: true,
    },
  ],
};

function labelled(object: object) {
  return { ...object, metadata: { name: "a", labels: { app: "a" } } };
}
