import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { findPodSecurityEvaluator, readUpstreamTestPods } from "../pod-security/evaluator.ts";
import {
  buildDryRunScenario,
  buildEditStep,
  buildScenario,
  generateCreateStep,
  labelSteps,
  wrapInList,
} from "./scenario-parts.ts";
import {
  addSometimes,
  buildList,
  generateFieldEdit,
  generateObjects,
  omitUndefinedMembers,
  pickOne,
  type RequestSequence,
} from "./steps.ts";

// Generates pods and pod templates, some of which violate the Pod Security Standards, and namespaces with different
// levels.

const modes = ["enforce", "audit", "warn"];
const getLabelKey = (label: string) => `pod-security.kubernetes.io/${label}`;
const toLabels = (labels: Record<string, string>) =>
  Object.fromEntries(Object.entries(labels).map(([label, value]) => [getLabelKey(label), value]));

const population = "secured-populated";

const image = "registry.example.com/app:1";
const confined = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };

const seLinuxOptions = pickOne<JsonMap>(
  { type: "container_t" },
  { type: "container_engine_t" },
  { type: "spc_t" },
  { user: "u" },
  { role: "r" },
  { type: "spc_t", user: "u", role: "r", level: "s0" },
);
const profile = pickOne<JsonMap>(
  { type: "RuntimeDefault" },
  { type: "Unconfined" },
  { type: "Localhost", localhostProfile: "a" },
);
const flag = fc.boolean();
/** Fields of the security contexts of pods and of containers. */
const sharedFields = {
  seLinuxOptions: addSometimes(seLinuxOptions, "in 1 of 8"),
  seccompProfile: addSometimes(profile, "in 1 of 4"),
  appArmorProfile: addSometimes(profile, "in 1 of 8"),
  runAsNonRoot: addSometimes(pickOne(true, true, false), "in 1 of 3"),
  runAsUser: addSometimes(pickOne(0, 1000), "in 1 of 6"),
};
const capability = pickOne("NET_BIND_SERVICE", "CHOWN", "NET_RAW", "SYS_PTRACE", "ALL", "MKNOD", "é😀", "\ue000");
/** Generates the security context of a container. Three of five forbid privilege escalation and drop capabilities. */
const containerSecurityContext = fc
  .tuple(
    generateObjects({
      ...sharedFields,
      privileged: addSometimes(flag, "in 1 of 7"),
      capabilities: addSometimes(
        generateObjects({
          add: addSometimes(buildList(capability, 3)),
          drop: addSometimes(pickOne(["ALL"], ["NET_RAW"], ["all"])),
        }),
      ),
      procMount: addSometimes(pickOne("Default", "Unmasked"), "in 1 of 10"),
    }),
    pickOne<JsonMap>({}, { allowPrivilegeEscalation: true }, confined, confined, confined),
  )
  .map(([fields, moreFields]): JsonMap => {
    const { allowPrivilegeEscalation, ...context } = { ...fields, ...moreFields };
    // API validation refuses a privileged container whose `allowPrivilegeEscalation` is false.
    const keepsField = !context.privileged && allowPrivilegeEscalation !== undefined;
    return { ...context, ...(keepsField && { allowPrivilegeEscalation }) };
  });

const host = pickOne("127.0.0.1", "example.com", "");
const action = pickOne("httpGet", "tcpSocket").chain((kind) =>
  host.map((host) => ({ [kind]: { port: 80, ...(host && { host }) } })),
);
const hostPorts = pickOne(
  [
    { containerPort: 80, hostPort: 8080 },
    { containerPort: 81, hostPort: 443 },
  ],
  [{ containerPort: 80, hostPort: 80 }],
);
/** Builds a generator of containers. Init containers and ephemeral containers must not have probes. */
const buildContainer = (name: string, { hasProbes }: { hasProbes: boolean }) =>
  generateObjects({
    name: pickOne(name),
    image: pickOne(image, image, "app:2"),
    securityContext: addSometimes(containerSecurityContext, "in 4 of 5"),
    ...(hasProbes && {
      livenessProbe: addSometimes(action, "in 1 of 10"),
      readinessProbe: addSometimes(action, "in 1 of 10"),
      lifecycle: addSometimes(
        action.map((action) => ({ preStop: action })),
        "in 1 of 10",
      ),
    }),
    ports: addSometimes(hostPorts, "in 1 of 10"),
  });

/** Generates sources of volumes. The level `restricted` allows only some of them. */
const source = pickOne<JsonMap>(
  { emptyDir: {} },
  { configMap: { name: "a" } },
  { secret: { secretName: "a" } },
  { projected: {} },
  {},
  { csi: { driver: "example.com" } },
  { image: { reference: image } },
  { hostPath: { path: "/etc" } },
  { nfs: { server: "a", path: "/b" } },
  { rbd: { monitors: ["a"], image: "b" } },
  { hostPath: { path: "/" } },
  { azureFile: { secretName: "a", shareName: "b" } },
  { storageos: { volumeName: "a" } },
  { flexVolume: { driver: "example.com/a" } },
);
const volumes = buildList(source, 3).map((found) => found.map((source, index) => ({ name: `v${index}`, ...source })));
/** Generates names of sysctls. The level `baseline` allows only some of them. */
const sysctl = pickOne(
  "kernel.shm_rmid_forced",
  "net.ipv4.ip_local_reserved_ports",
  "net.ipv4.tcp_keepalive_time",
  "kernel.msgmax",
  "net.ipv4.tcp_rmem",
  "net.ipv4.tcp_notsent_lowat",
  "net.core.somaxconn",
);
const sysctls = fc
  .uniqueArray(sysctl, { minLength: 1, maxLength: 3 })
  .map((names) => names.map((name) => ({ name, value: "0" })));

const debuggers = fc
  .tuple(buildContainer("e0", { hasProbes: false }))
  .map((found) => found.map(({ ports: _, ...one }) => one));

/** Generates specs of pods, some of which violate the levels `baseline` and `restricted`. */
const spec = fc
  .tuple(
    generateObjects({
      containers: fc.oneof(
        fc.tuple(buildContainer("c0", { hasProbes: true })),
        fc.tuple(buildContainer("c0", { hasProbes: true }), buildContainer("c1", { hasProbes: true })),
      ),
      initContainers: addSometimes(fc.tuple(buildContainer("i0", { hasProbes: false })), "in 1 of 4"),
      securityContext: addSometimes(
        generateObjects({ ...sharedFields, sysctls: addSometimes(sysctls, "in 1 of 6") }),
        "in 3 of 4",
      ),
      volumes: addSometimes(volumes, "in 1 of 3"),
      runtimeClassName: addSometimes(pickOne("plain", "sandboxed"), "in 1 of 8"),
      os: addSometimes(pickOne({ name: "linux" }), "in 1 of 8"),
    }),
    pickOne<JsonMap>(
      {},
      {},
      {},
      {},
      { hostPID: true },
      { hostIPC: true },
      { hostNetwork: true, hostPID: true },
      { hostUsers: false },
      { hostUsers: false },
      { hostUsers: true },
    ),
  )
  .map(([spec, hostFields]): JsonMap => ({ ...spec, ...hostFields }));
/** Generates specs of Windows pods. Few security fields are generated, because the API server allows hardly any. */
const windowsPodSpec = pickOne<JsonMap>(
  {},
  { runAsNonRoot: true },
  { runAsNonRoot: false },
  { windowsOptions: { hostProcess: true } },
).map((context): JsonMap => {
  const securityContext = { securityContext: context };
  const isHostProcess = Object(context).windowsOptions !== undefined;
  const containers = [{ name: "c0", image, ...securityContext }];
  return {
    os: { name: "windows" },
    containers,
    ...(isHostProcess && { hostNetwork: true, securityContext: { windowsOptions: { hostProcess: true } } }),
  };
});
/** Generates annotations about AppArmor and seccomp for a container. */
const annotations = fc
  .tuple(
    pickOne("apparmor.security.beta", "seccomp.security.alpha"),
    pickOne("c0", "c1", "other"),
    pickOne("unconfined", "runtime/default", "localhost/a"),
  )
  .map(([kind, name, value]) => ({ [`container.${kind}.kubernetes.io/${name}`]: value }));

/** The Go program with upstream's checks and its test pods; undefined if it wasn't built. */
const evaluator = await findPodSecurityEvaluator();
const corpus = evaluator ? await readUpstreamTestPods(evaluator) : [];
/** Returns upstream's test pods of all Kubernetes versions, without duplicates. */
const listUpstreamPods = (): PodTemplate[] => {
  const texts = corpus
    .filter(({ place }) => place.includes("/v1."))
    .map(({ pod: { metadata, spec } }) => {
      const { annotations } = metadata ?? {};
      return JSON.stringify({ metadata: annotations ? { annotations } : {}, spec });
    });
  return [...new Set(texts)].map((text) => JSON.parse(text));
};
const upstreamPods = listUpstreamPods();

interface PodTemplate {
  metadata: JsonMap;
  spec: JsonMap;
}
/** Generates pod templates: generated ones, those of Windows pods, and upstream's test pods. */
const template: Arbitrary<PodTemplate> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      metadata: addSometimes(annotations, "in 1 of 8").map((found): JsonMap => (found ? { annotations: found } : {})),
      spec,
    }),
  },
  { weight: 1, arbitrary: windowsPodSpec.map((spec) => ({ metadata: {}, spec })) },
  ...(upstreamPods.length > 0 ? [{ weight: 3, arbitrary: pickOne(...upstreamPods) }] : []),
);

const buildChange = (path: string, value: Arbitrary<unknown>, subresource?: string) =>
  buildEditStep(wrapInList(generateFieldEdit(path, value)), subresource);
const imageChange = buildChange("spec.containers.0.image", pickOne("app:3", "app:4"));
const debug = buildChange("spec.ephemeralContainers", debuggers, "ephemeralcontainers");
const resize = buildChange("spec.containers.0.resources.requests", pickOne({ cpu: "1" }, { cpu: "2" }), "resize");

const restartPolicy = "Never";
const selector = { matchLabels: { app: "x" } };
const addLabels = ({ metadata, spec }: PodTemplate) => ({ metadata: { ...metadata, labels: { app: "x" } }, spec });
/** Workloads by kind: the resource, the API version, and a function that builds an object around a pod template. */
const workloads: Record<string, [RequestSequence["kind"], string, (template: PodTemplate) => JsonMap]> = {
  Deployment: ["deployments", "apps/v1", (one) => ({ spec: { selector, template: addLabels(one) } })],
  StatefulSet: [
    "statefulsets",
    "apps/v1",
    (one) => ({ spec: { selector, serviceName: "a", template: addLabels(one) } }),
  ],
  DaemonSet: ["daemonsets", "apps/v1", (one) => ({ spec: { selector, template: addLabels(one) } })],
  ReplicaSet: ["replicasets", "apps/v1", (one) => ({ spec: { selector, template: addLabels(one) } })],
  ReplicationController: [
    "replicationcontrollers",
    "v1",
    (one) => ({ spec: { selector: { app: "x" }, template: addLabels(one) } }),
  ],
  Job: [
    "jobs",
    "batch/v1",
    ({ metadata, spec }) => ({ spec: { template: { metadata, spec: { ...spec, restartPolicy } } } }),
  ],
  CronJob: [
    "cronjobs",
    "batch/v1",
    ({ metadata, spec }) => {
      const template = { metadata, spec: { ...spec, restartPolicy } };
      return { spec: { schedule: "0 0 * * *", jobTemplate: { spec: { template } } } };
    },
  ],
  PodTemplate: ["podtemplates", "v1", (template) => ({ template })],
};

const level = pickOne("privileged", "baseline", "baseline", "restricted", "restricted", "Baseline", "");
const version = pickOne("latest", "v1.0", "v1.21", "v1.34", "v1.99", "1.30");
/** Generates the Pod Security labels of a namespace. Some values are invalid. */
const labels = fc
  .record({
    enforce: addSometimes(level, "in 2 of 3"),
    audit: addSometimes(level),
    warn: addSometimes(level),
    "enforce-version": addSometimes(version, "in 1 of 4"),
    "warn-version": addSometimes(version, "in 1 of 6"),
    "audit-version": addSometimes(version, "in 1 of 10"),
  })
  .map((given) => toLabels(omitUndefinedMembers(given) as Record<string, string>));
const buildRelabel = (label: string, value: Arbitrary<string>) =>
  buildEditStep(value.map((value) => [{ path: ["metadata", "labels", getLabelKey(label)], value }]));
const relabel = fc.oneof(
  ...["enforce", "enforce", ...modes].map((mode) => buildRelabel(mode, level)),
  ...modes.map((mode) => buildRelabel(`${mode}-version`, version)),
  labelSteps,
);

const existingNamespaces = [population, population, population, "secured-oddly", "secured-firmly", "secured-not"];

/** Scenarios for PodSecurity, by name. */
export const podSecurityScenarios = {
  securedPods: buildScenario(
    "pods",
    generateCreateStep(
      template.map(({ metadata, spec }): JsonMap => ({ apiVersion: "v1", kind: "Pod", metadata, spec })),
    ),
    // A step that stands here twice is chosen twice as often.
    [labelSteps, imageChange, imageChange, debug, debug, resize],
  ),
  securedWorkloads: fc.oneof(
    ...Object.entries(workloads).map(([kind, [resource, apiVersion, buildBody]]) =>
      buildScenario(
        resource,
        generateCreateStep(
          template.map((template): JsonMap => ({ apiVersion, kind, metadata: {}, ...buildBody(template) })),
        ),
        [labelSteps],
      ),
    ),
  ),
  securedNamespaces: fc.oneof(
    buildScenario(
      "namespaces",
      generateCreateStep(
        labels.map((labels): JsonMap => ({ apiVersion: "v1", kind: "Namespace", metadata: { labels } })),
      ),
      [relabel],
    ),
    ...existingNamespaces.map((name) => buildDryRunScenario("namespaces", [name], [relabel])),
  ),
};
