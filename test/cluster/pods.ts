import fc, { type Arbitrary } from "fast-check";
import { readRows } from "../rows.ts";

// Generates pods with all fields that the Pod Security checks read, and with some fields that those checks ignore.

const texts = readRows<Record<"odd" | "capabilities" | "sysctls" | "volumeSources" | "seLinuxTypes", string[]>>(
  import.meta.filename,
);
const chooseFrom = <T>(...values: T[]): Arbitrary<T> => fc.constantFrom(...values);
/** Generates objects with any of these members. */
const createPartialRecord = (model: Record<string, Arbitrary<unknown>>) => fc.record(model, { requiredKeys: [] });
/** Generates a value in one of `presentOneIn` cases, and undefined in the others. */
const makeOptional = <T>(value: Arbitrary<T>, { presentOneIn = 4 } = {}): Arbitrary<T | undefined> =>
  fc.oneof({ weight: presentOneIn - 1, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: value });

const odd = chooseFrom(...texts.odd);
const profileType = chooseFrom("RuntimeDefault", "Localhost", "Unconfined", "", "runtime/default", "localhost/a", "😀");
const profile = makeOptional(createPartialRecord({ type: profileType, localhostProfile: chooseFrom("a") }), {
  presentOneIn: 3,
});
const flag = makeOptional(fc.boolean(), { presentOneIn: 3 });
const user = makeOptional(chooseFrom(0, 1, 1000, -1), { presentOneIn: 3 });
const windowsOptions = makeOptional(createPartialRecord({ hostProcess: fc.boolean(), runAsUserName: chooseFrom("a") }));
const seLinuxOptions = makeOptional(
  createPartialRecord({
    type: chooseFrom(...texts.seLinuxTypes),
    user: chooseFrom("", "a"),
    role: chooseFrom("", "a"),
    level: chooseFrom("s0"),
  }),
  { presentOneIn: 3 },
);
const capability = fc.oneof(chooseFrom(...texts.capabilities), odd);
const capabilities = makeOptional(
  createPartialRecord({ add: fc.array(capability, { maxLength: 3 }), drop: fc.array(capability, { maxLength: 3 }) }),
  { presentOneIn: 2 },
);

/** Fields of the security contexts of pods and of containers. */
const sharedFields = {
  appArmorProfile: profile,
  seccompProfile: profile,
  runAsNonRoot: flag,
  runAsUser: user,
  seLinuxOptions,
  windowsOptions,
};
const sysctl = chooseFrom(...texts.sysctls);
const podSecurityContext = createPartialRecord({
  ...sharedFields,
  sysctls: makeOptional(fc.array(fc.record({ name: sysctl, value: chooseFrom("0") }), { maxLength: 4 }), {
    presentOneIn: 2,
  }),
  fsGroup: chooseFrom(0),
});
/**
 * Half of the containers get the fields that the level `restricted` requires, except the seccompProfile. Independently,
 * half of the containers get the seccompProfile that this level requires.
 */
const containerSecurityContext = fc
  .tuple(
    createPartialRecord({
      ...sharedFields,
      capabilities,
      allowPrivilegeEscalation: flag,
      privileged: flag,
      procMount: makeOptional(chooseFrom("Default", "Unmasked", "", "Odd")),
      readOnlyRootFilesystem: flag,
    }),
    chooseFrom({}, { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] }, runAsNonRoot: true }),
    chooseFrom({}, { seccompProfile: { type: "RuntimeDefault" } }),
  )
  .map((parts) => Object.assign({}, ...parts));

const host = chooseFrom("", "127.0.0.1", "localhost", "example.com", "\ue000", "😀");
const action = createPartialRecord({
  httpGet: createPartialRecord({ host, port: chooseFrom(80), path: chooseFrom("/") }),
  tcpSocket: createPartialRecord({ host, port: chooseFrom(80) }),
  exec: chooseFrom({ command: ["a"] }),
});
const probe = makeOptional(action, { presentOneIn: 8 });
const hostPort = makeOptional(chooseFrom(0, 80, 8080, 10000, 443), { presentOneIn: 2 });
/** Generates containers, whose probes and hooks may name a host. */
const container = fc.record(
  {
    name: chooseFrom("a", "b", "c", "c", 'quoted"', "😀", "\ue000"),
    image: chooseFrom("a", "b"),
    securityContext: containerSecurityContext,
    livenessProbe: probe,
    readinessProbe: probe,
    startupProbe: probe,
    lifecycle: makeOptional(createPartialRecord({ postStart: action, preStop: action }), { presentOneIn: 8 }),
    ports: makeOptional(fc.array(fc.record({ containerPort: chooseFrom(80), hostPort }), { maxLength: 3 }), {
      presentOneIn: 4,
    }),
  },
  { requiredKeys: ["name", "image"] },
);

// Each volume has a source, because the API server adds one to a volume without a source.
const volume = fc
  .tuple(chooseFrom("v", "w", 'x"'), fc.subarray(texts.volumeSources, { minLength: 1, maxLength: 2 }))
  .map(([name, chosen]) => ({ name, ...Object.fromEntries(chosen.map((source) => [source, {}])) }));

/** Generates annotations about AppArmor and seccomp, which older versions of the checks read. */
const annotations = fc
  .array(
    fc.tuple(
      chooseFrom(
        // No container has the name "d".
        ...["a", "b", "d"].map((name) => `container.apparmor.security.beta.kubernetes.io/${name}`),
        ...["a", "b", 'quoted"', "d"].map((name) => `container.seccomp.security.alpha.kubernetes.io/${name}`),
        "seccomp.security.alpha.kubernetes.io/pod",
        "example.com/other",
        "constructor",
      ),
      fc.oneof(
        chooseFrom("runtime/default", "docker/default", "localhost/a", "localhost/", "unconfined", "localhost"),
        odd,
      ),
    ),
    { maxLength: 4 },
  )
  .map((entries) => Object.fromEntries(entries));

const spec = fc.record(
  {
    containers: fc.array(container, { maxLength: 3 }),
    initContainers: makeOptional(fc.array(container, { maxLength: 2 }), { presentOneIn: 3 }),
    ephemeralContainers: makeOptional(fc.array(container, { maxLength: 2 }), { presentOneIn: 4 }),
    securityContext: podSecurityContext,
    volumes: makeOptional(fc.array(volume, { maxLength: 3 }), { presentOneIn: 2 }),
    os: makeOptional(chooseFrom({ name: "windows" }, { name: "linux" }, { name: "Windows" })),
    hostNetwork: flag,
    hostPID: flag,
    hostIPC: flag,
    hostUsers: makeOptional(fc.boolean(), { presentOneIn: 3 }),
  },
  { requiredKeys: ["containers"] },
);

export const pods: Arbitrary<object> = fc
  .record({ annotations: makeOptional(annotations, { presentOneIn: 2 }), spec })
  .map(({ annotations, spec }) => JSON.parse(JSON.stringify({ metadata: { name: "p", annotations }, spec })));
