import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { findEvaluator, readCorpus } from "../pod-security/evaluator.ts";
import { at, list, maybe, one, type Sequence, whole } from "./steps.ts";
import { alone, creation, edit, label, story, trial } from "./stories.ts";

// Pods that dare more or less, their templates, and namespaces that ask for more or less of them.

const modes = ["enforce", "audit", "warn"];
const keyOf = (label: string) => `pod-security.kubernetes.io/${label}`;
const asking = (labels: Record<string, string>) =>
  Object.fromEntries(Object.entries(labels).map(([label, value]) => [keyOf(label), value]));

const population = "secured-populated";

const image = "registry.example.com/app:1";
const confined = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };

const seLinuxOptions = one<JsonMap>(
  ...[{ type: "container_t" }, { type: "container_engine_t" }, { type: "spc_t" }, { user: "u" }, { role: "r" }],
  { type: "spc_t", user: "u", role: "r", level: "s0" },
);
const profile = one<JsonMap>(
  ...[{ type: "RuntimeDefault" }, { type: "Unconfined" }, { type: "Localhost", localhostProfile: "a" }],
);
const flag = fc.boolean();
const shared = {
  seLinuxOptions: maybe(seLinuxOptions, 1, 7),
  seccompProfile: maybe(profile, 1, 3),
  appArmorProfile: maybe(profile, 1, 7),
  runAsNonRoot: maybe(one(true, true, false), 1, 2),
  runAsUser: maybe(one(0, 1000), 1, 5),
};
const capability = one("NET_BIND_SERVICE", "CHOWN", "NET_RAW", "SYS_PTRACE", "ALL", "MKNOD", "é😀", "\ue000");
const ofContainer = fc
  .tuple(
    whole({
      ...shared,
      privileged: maybe(flag, 1, 6),
      capabilities: maybe(whole({ add: maybe(list(capability, 3)), drop: maybe(one(["ALL"], ["NET_RAW"], ["all"])) })),
      procMount: maybe(one("Default", "Unmasked"), 1, 9),
    }),
    one<JsonMap>({}, { allowPrivilegeEscalation: true }, confined, confined, confined),
  )
  .map(([one, more]): JsonMap => {
    const { allowPrivilegeEscalation, ...context } = { ...one, ...more };
    // The admin has every right: no plugin keeps it from getting more.
    const isLimited = !context.privileged && allowPrivilegeEscalation !== undefined;
    return { ...context, ...(isLimited && { allowPrivilegeEscalation }) };
  });

const host = one("127.0.0.1", "example.com", "");
const action = one("httpGet", "tcpSocket").chain((kind) =>
  host.map((host) => ({ [kind]: { port: 80, ...(host && { host }) } })),
);
const hostPorts = one(
  [
    { containerPort: 80, hostPort: 8080 },
    { containerPort: 81, hostPort: 443 },
  ],
  [{ containerPort: 80, hostPort: 80 }],
);
const containerOf = (name: string, runs: boolean) =>
  whole({
    name: one(name),
    image: one(image, image, "app:2"),
    securityContext: maybe(ofContainer, 4),
    ...(runs && {
      livenessProbe: maybe(action, 1, 9),
      readinessProbe: maybe(action, 1, 9),
      lifecycle: maybe(
        action.map((action) => ({ preStop: action })),
        1,
        9,
      ),
    }),
    ports: maybe(hostPorts, 1, 9),
  });

const source = one<JsonMap>(
  ...[{ emptyDir: {} }, { configMap: { name: "a" } }, { secret: { secretName: "a" } }, { projected: {} }, {}],
  ...[{ csi: { driver: "example.com" } }, { image: { reference: image } }, { hostPath: { path: "/etc" } }],
  ...[{ nfs: { server: "a", path: "/b" } }, { rbd: { monitors: ["a"], image: "b" } }, { hostPath: { path: "/" } }],
  ...[{ azureFile: { secretName: "a", shareName: "b" } }, { storageos: { volumeName: "a" } }],
  { flexVolume: { driver: "example.com/a" } },
);
const volumes = list(source, 3).map((found) => found.map((source, index) => ({ name: `v${index}`, ...source })));
const sysctl = one(
  ...["kernel.shm_rmid_forced", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "kernel.msgmax"],
  ...["net.ipv4.tcp_rmem", "net.core.somaxconn"],
);
const sysctls = fc
  .uniqueArray(sysctl, { minLength: 1, maxLength: 3 })
  .map((names) => names.map((name) => ({ name, value: "0" })));

const debuggers = fc.tuple(containerOf("e0", false)).map((found) => found.map(({ ports: _, ...one }) => one));

const spec = fc
  .tuple(
    whole({
      containers: fc.oneof(
        fc.tuple(containerOf("c0", true)),
        fc.tuple(containerOf("c0", true), containerOf("c1", true)),
      ),
      initContainers: maybe(fc.tuple(containerOf("i0", false)), 1, 3),
      securityContext: maybe(whole({ ...shared, sysctls: maybe(sysctls, 1, 5) }), 3),
      volumes: maybe(volumes, 1, 2),
      runtimeClassName: maybe(one("plain", "sandboxed"), 1, 7),
      os: maybe(one({ name: "linux" }), 1, 7),
    }),
    one<JsonMap>(
      ...[{}, {}, {}, {}, { hostPID: true }, { hostIPC: true }, { hostNetwork: true, hostPID: true }],
      ...[{ hostUsers: false }, { hostUsers: false }, { hostUsers: true }],
    ),
  )
  .map(([spec, more]): JsonMap => ({ ...spec, ...more }));
/** Of these hardly a field may be set. */
const onWindows = one<JsonMap>(
  ...[{}, { runAsNonRoot: true }, { runAsNonRoot: false }, { windowsOptions: { hostProcess: true } }],
).map((context): JsonMap => {
  const securityContext = { securityContext: context };
  const isHosted = Object(context).windowsOptions !== undefined;
  const containers = [{ name: "c0", image, ...securityContext }];
  return {
    os: { name: "windows" },
    containers,
    ...(isHosted && { hostNetwork: true, securityContext: { windowsOptions: { hostProcess: true } } }),
  };
});
const annotations = fc
  .tuple(
    one("apparmor.security.beta", "seccomp.security.alpha"),
    one("c0", "c1", "other"),
    one("unconfined", "runtime/default", "localhost/a"),
  )
  .map(([kind, name, value]) => ({ [`container.${kind}.kubernetes.io/${name}`]: value }));

/** Those on which upstream tests its checks, where they are at hand. */
const evaluator = await findEvaluator();
const corpus = evaluator ? await readCorpus(evaluator) : [];
/** Most are tested at several versions. */
const upstreamsAt = (version: string): Template[] => {
  const texts = corpus
    .filter(({ place }) => place.includes(version))
    .map(({ pod: { metadata, spec } }) => {
      const { annotations } = metadata ?? {};
      return JSON.stringify({ metadata: annotations ? { annotations } : {}, spec });
    });
  return [...new Set(texts)].map((text) => JSON.parse(text));
};
const upstreams = upstreamsAt("/v1.");

interface Template {
  metadata: JsonMap;
  spec: JsonMap;
}
const template: Arbitrary<Template> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      metadata: maybe(annotations, 1, 7).map((annotations): JsonMap => (annotations ? { annotations } : {})),
      spec,
    }),
  },
  { weight: 1, arbitrary: onWindows.map((spec) => ({ metadata: {}, spec })) },
  ...(upstreams.length > 0 ? [{ weight: 3, arbitrary: one(...upstreams) }] : []),
);

const change = (path: string, value: Arbitrary<unknown>, subresource?: string) =>
  edit(alone(at(path, value)), subresource);
const brings = change("spec.containers.0.image", one("app:3", "app:4"));
const debug = change("spec.ephemeralContainers", debuggers, "ephemeralcontainers");
const resize = change("spec.containers.0.resources.requests", one({ cpu: "1" }, { cpu: "2" }), "resize");

const restartPolicy = "Never";
const selector = { matchLabels: { app: "x" } };
const ofWorkload = ({ metadata, spec }: Template) => ({ metadata: { ...metadata, labels: { app: "x" } }, spec });
const workloads: Record<string, [Sequence["kind"], string, (template: Template) => JsonMap]> = {
  Deployment: ["deployments", "apps/v1", (one) => ({ spec: { selector, template: ofWorkload(one) } })],
  StatefulSet: [
    "statefulsets",
    "apps/v1",
    (one) => ({ spec: { selector, serviceName: "a", template: ofWorkload(one) } }),
  ],
  DaemonSet: ["daemonsets", "apps/v1", (one) => ({ spec: { selector, template: ofWorkload(one) } })],
  ReplicaSet: ["replicasets", "apps/v1", (one) => ({ spec: { selector, template: ofWorkload(one) } })],
  ReplicationController: [
    ...(["replicationcontrollers", "v1"] as const),
    (one) => ({ spec: { selector: { app: "x" }, template: ofWorkload(one) } }),
  ],
  Job: [
    "jobs",
    "batch/v1",
    ({ metadata, spec }) => ({ spec: { template: { metadata, spec: { ...spec, restartPolicy } } } }),
  ],
  CronJob: [
    ...(["cronjobs", "batch/v1"] as const),
    ({ metadata, spec }) => {
      const template = { metadata, spec: { ...spec, restartPolicy } };
      return { spec: { schedule: "0 0 * * *", jobTemplate: { spec: { template } } } };
    },
  ],
  PodTemplate: ["podtemplates", "v1", (template) => ({ template })],
};

const level = one("privileged", "baseline", "baseline", "restricted", "restricted", "Baseline", "");
const version = one("latest", "v1.0", "v1.21", "v1.34", "v1.99", "1.30");
const labels = fc
  .record({
    enforce: maybe(level, 2),
    audit: maybe(level),
    warn: maybe(level),
    "enforce-version": maybe(version, 1, 3),
    "warn-version": maybe(version, 1, 5),
    "audit-version": maybe(version, 1, 9),
  })
  .map((said) =>
    asking(
      Object.fromEntries(Object.entries(said).filter((entry): entry is [string, string] => entry[1] !== undefined)),
    ),
  );
const relabelBy = (label: string, value: Arbitrary<string>) =>
  edit(value.map((value) => [{ path: ["metadata", "labels", keyOf(label)], value }]));
const relabel = fc.oneof(
  ...["enforce", "enforce", ...modes].map((mode) => relabelBy(mode, level)),
  ...modes.map((mode) => relabelBy(`${mode}-version`, version)),
  label,
);

const standing = [population, population, population, "secured-oddly", "secured-firmly", "secured-not"];

export const podSecurityScenes = {
  securedPods: story(
    "pods",
    creation(template.map(({ metadata, spec }): JsonMap => ({ apiVersion: "v1", kind: "Pod", metadata, spec }))),
    [label, brings, brings, debug, debug, resize],
  ),
  securedWorkloads: fc.oneof(
    ...Object.entries(workloads).map(([name, [kind, apiVersion, bodyOf]]) =>
      story(
        kind,
        creation(template.map((template): JsonMap => ({ apiVersion, kind: name, metadata: {}, ...bodyOf(template) }))),
        [label],
      ),
    ),
  ),
  securedNamespaces: fc.oneof(
    story(
      "namespaces",
      creation(labels.map((labels): JsonMap => ({ apiVersion: "v1", kind: "Namespace", metadata: { labels } }))),
      [relabel, relabel],
    ),
    ...standing.map((name) => trial("namespaces", [name], [relabel])),
  ),
};
