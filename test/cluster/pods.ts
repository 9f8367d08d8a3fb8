import fc, { type Arbitrary } from "fast-check";

// Generates pods with all fields that the Pod Security checks read, and with similar ones.

const one = <T>(...values: T[]): Arbitrary<T> => fc.constantFrom(...values);
const some = (model: Record<string, Arbitrary<unknown>>) => fc.record(model, { requiredKeys: [] });
/** Generates a value in one of `of` cases, otherwise undefined. */
const rarely = <T>(value: Arbitrary<T>, of = 4): Arbitrary<T | undefined> =>
  fc.oneof({ weight: of - 1, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: value });

/** Texts that Go quotes or sorts in its own way. */
const odd = one(
  "",
  "a",
  "a b",
  'say "a"',
  "back\\slash",
  "\u0007\b\f\n\r\t\v\u0000\u001f\u007f",
  "ä\u00a0\u200b\u2028",
  "\ue000",
  "😀",
  "\u{e0001}\ufffd",
  "١",
);
const profileType = one("RuntimeDefault", "Localhost", "Unconfined", "", "runtime/default", "localhost/a", "😀");
const profile = rarely(some({ type: profileType, localhostProfile: one("a") }), 3);
const flag = rarely(fc.boolean(), 3);
const user = rarely(one(0, 1, 1000, -1), 3);
const windowsOptions = rarely(some({ hostProcess: fc.boolean(), runAsUserName: one("a") }));
const seLinuxOptions = rarely(
  some({
    type: one("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t", "spc_t", "other_t"),
    user: one("", "a"),
    role: one("", "a"),
    level: one("s0"),
  }),
  3,
);
const capability = fc.oneof(
  one(
    "ALL",
    "all",
    "NET_BIND_SERVICE",
    "CHOWN",
    "SYS_CHROOT",
    "AUDIT_WRITE",
    "NET_RAW",
    "SYS_ADMIN",
    "CAP_CHOWN",
    "MKNOD",
  ),
  odd,
);
const capabilities = rarely(
  some({ add: fc.array(capability, { maxLength: 3 }), drop: fc.array(capability, { maxLength: 3 }) }),
  2,
);

const shared = {
  appArmorProfile: profile,
  seccompProfile: profile,
  runAsNonRoot: flag,
  runAsUser: user,
  seLinuxOptions,
  windowsOptions,
};
const sysctl = one(
  ...["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range"],
  ...["net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time"],
  ...["net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes"],
  ...["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "kernel.msgmax", "", "Kernel.shm_rmid_forced"],
);
const ofPod = some({
  ...shared,
  sysctls: rarely(fc.array(fc.record({ name: sysctl, value: one("0") }), { maxLength: 4 }), 2),
  fsGroup: one(0),
});
/** Half of the containers have the fields that the level restricted requires. */
const ofContainer = fc
  .tuple(
    some({
      ...shared,
      capabilities,
      allowPrivilegeEscalation: flag,
      privileged: flag,
      procMount: rarely(one("Default", "Unmasked", "", "Odd")),
      readOnlyRootFilesystem: flag,
    }),
    one({}, { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] }, runAsNonRoot: true }),
    one({}, { seccompProfile: { type: "RuntimeDefault" } }),
  )
  .map((parts) => Object.assign({}, ...parts));

const host = one("", "127.0.0.1", "localhost", "example.com", "\ue000", "😀");
const action = some({
  httpGet: some({ host, port: one(80), path: one("/") }),
  tcpSocket: some({ host, port: one(80) }),
  exec: one({ command: ["a"] }),
});
const probe = rarely(action, 8);
const hostPort = rarely(one(0, 80, 8080, 10000, 443), 2);
const container = fc.record(
  {
    name: one("a", "b", "c", "c", 'quoted"', "😀", "\ue000"),
    image: one("a", "b"),
    securityContext: ofContainer,
    livenessProbe: probe,
    readinessProbe: probe,
    startupProbe: probe,
    lifecycle: rarely(some({ postStart: action, preStop: action }), 8),
    ports: rarely(fc.array(fc.record({ containerPort: one(80), hostPort }), { maxLength: 3 }), 4),
  },
  { requiredKeys: ["name", "image"] },
);

const sources = [
  ...["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"],
  ...["secret", "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd"],
  ...["flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk"],
  ...["photonPersistentDisk", "portworxVolume", "scaleIO", "storageos"],
];
// The API server adds a source to a volume without one.
const volume = fc
  .tuple(one("v", "w", 'x"'), fc.subarray(sources, { minLength: 1, maxLength: 2 }))
  .map(([name, chosen]) => ({ name, ...Object.fromEntries(chosen.map((source) => [source, {}])) }));

const annotations = fc
  .array(
    fc.tuple(
      one(
        ...["a", "b", "d"].map((name) => `container.apparmor.security.beta.kubernetes.io/${name}`),
        ...["a", "b", 'quoted"', "d"].map((name) => `container.seccomp.security.alpha.kubernetes.io/${name}`),
        ...["seccomp.security.alpha.kubernetes.io/pod", "example.com/other", "constructor"],
      ),
      fc.oneof(one("runtime/default", "docker/default", "localhost/a", "localhost/", "unconfined", "localhost"), odd),
    ),
    { maxLength: 4 },
  )
  .map((entries) => Object.fromEntries(entries));

const spec = fc.record(
  {
    containers: fc.array(container, { maxLength: 3 }),
    initContainers: rarely(fc.array(container, { maxLength: 2 }), 3),
    ephemeralContainers: rarely(fc.array(container, { maxLength: 2 }), 4),
    securityContext: ofPod,
    volumes: rarely(fc.array(volume, { maxLength: 3 }), 2),
    os: rarely(one({ name: "windows" }, { name: "linux" }, { name: "Windows" })),
    hostNetwork: flag,
    hostPID: flag,
    hostIPC: flag,
    hostUsers: rarely(fc.boolean(), 3),
  },
  { requiredKeys: ["containers"] },
);

export const pods: Arbitrary<object> = fc
  .record({ annotations: rarely(annotations, 2), spec })
  .map(({ annotations, spec }) => JSON.parse(JSON.stringify({ metadata: { name: "p", annotations }, spec })));
