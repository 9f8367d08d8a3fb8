import { isMap } from "postern/json";
import type { Around } from "./choose.ts";
import type { Policy } from "./policy.ts";
import { profileOf } from "./profiles.ts";
import { volumeTypes } from "./volumes.ts";

/** Returns what is wrong with a value; `at` is the value's path in the settings. */
type Check = (value: unknown, at: string) => string | undefined;

const shown = (value: unknown) => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
};
const must = (what: string, at: string, value: unknown) => `must have ${what} as ${at}, not ${shown(value)}`;
const first = (faults: Iterable<string | undefined>) => {
  for (const fault of faults) if (fault !== undefined) return fault;
};

const flag: Check = (value, at) => (typeof value === "boolean" ? undefined : must("true or false", at, value));
const text: Check = (value, at) => (typeof value === "string" ? undefined : must("a text", at, value));
const word: Check = (value, at) =>
  typeof value === "string" && value !== "" ? undefined : must("a text that isn't empty", at, value);
const oneOf =
  (...values: string[]): Check =>
  (value, at) =>
    typeof value === "string" && values.includes(value) ? undefined : must(`one of ${values.join(", ")}`, at, value);
const list =
  (of: Check, most = Number.POSITIVE_INFINITY): Check =>
  (value, at) => {
    if (!Array.isArray(value)) return must("a list", at, value);
    if (value.length > most) return `must have no more than ${most} elements in ${at}`;
    return first(value.map((element, index) => of(element, `${at}[${index}]`)));
  };
/** Refuses unknown members: a typing error must not weaken a policy. */
const fields =
  (known: Record<string, Check>, needed: string[] = []): Check =>
  (value, at) => {
    if (!isMap(value)) return must("a map", at, value);
    return first([
      ...needed.map((key) => (Object.hasOwn(value, key) ? undefined : `must have ${key} in ${at}`)),
      ...Object.entries(value).map(([key, member]) => {
        const check = Object.hasOwn(known, key) ? known[key] : undefined;
        return check
          ? check(member, `${at}.${key}`)
          : `must have no ${shown(key)} in ${at}; known are ${Object.keys(known).join(", ")}`;
      }),
    ]);
  };
const all =
  (...checks: Check[]): Check =>
  (value, at) => {
    for (const check of checks) {
      const fault = check(value, at);
      if (fault !== undefined) return fault;
    }
  };

const number =
  (most: number): Check =>
  (value, at) =>
    Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= most
      ? undefined
      : must(`a whole number from 0 to ${most}`, at, value);
const ranges = (most = Number.MAX_SAFE_INTEGER): Check =>
  list(
    all(fields({ min: number(most), max: number(most) }, ["min", "max"]), (value, at) => {
      const { min, max } = Object(value);
      return min > max ? `must have a min that isn't greater than the max in ${at}, not ${shown(value)}` : undefined;
    }),
  );

const ruled = (...rules: string[]): Check =>
  all(fields({ rule: oneOf(...rules), ranges: ranges() }, ["rule"]), (value, at) => {
    const { rule, ranges = [] } = Object(value);
    return ["MustRunAs", "MayRunAs"].includes(rule) && ranges.length === 0
      ? `must have at least one range in ${at}, for ${rule}`
      : undefined;
  });

const path: Check = (value, at) =>
  typeof value === "string" && value !== "" && !value.split("/").includes("..")
    ? undefined
    : must('a path without ".."', at, value);
const sysctl: Check = (value, at) =>
  typeof value === "string" && value.length <= 253 && /^[-_.a-z0-9]*[a-z0-9*]$/.test(value)
    ? undefined
    : must("a sysctl, or the beginning of one and *", at, value);
const profile = (value: string) => value === "*" || profileOf(value) !== undefined;
const profiles: Check = (value, at) =>
  value === "" || (typeof value === "string" && value.split(",").every(profile))
    ? undefined
    : must("runtime/default, docker/default, unconfined or localhost/… (or several, a comma between)", at, value);

const annotations: Check = (value, at) => {
  if (!isMap(value)) return must("a map", at, value);
  const known = ["seccomp.security.alpha.kubernetes.io/", "apparmor.security.beta.kubernetes.io/"];
  return first(
    Object.entries(value).map(([key, said]) =>
      (known.some((prefix) => key.startsWith(prefix)) ? profiles : text)(said, `${at}["${key}"]`),
    ),
  );
};
/** Other members of upstream's metadata are allowed. */
const metadata: Check = (value, at) => {
  if (!isMap(value)) return must("a map", at, value);
  const { name, annotations: annotated = {} } = value;
  const isName = typeof name === "string" && name.length <= 253 && /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/.test(name);
  return isName ? annotations(annotated, `${at}.annotations`) : must("a name in lower case", `${at}.name`, name);
};

const account: Check = (value, at) =>
  typeof value === "string" && /^[^:]+:[^:]+$/.test(value) ? undefined : must('"namespace:name"', at, value);

const orAll = (of: Check): Check =>
  all(list(of), (value, at) =>
    Array.isArray(value) && value.includes("*") && value.length > 1 ? `must have nothing beside * in ${at}` : undefined,
  );

/** Built on demand: a deployed rule's settings have been checked before. */
const policyShape = (): Check => {
  const groupRule = ruled("MustRunAs", "MayRunAs", "RunAsAny");
  const sysctls = orAll(sysctl);
  const names = list(word);
  const spec = fields(
    {
      privileged: flag,
      defaultAddCapabilities: names,
      requiredDropCapabilities: names,
      allowedCapabilities: names,
      volumes: list(oneOf("*", ...volumeTypes)),
      hostNetwork: flag,
      hostPorts: ranges(65_535),
      hostPID: flag,
      hostIPC: flag,
      seLinux: all(
        fields(
          {
            rule: oneOf("MustRunAs", "RunAsAny"),
            seLinuxOptions: fields({ level: text, role: text, type: text, user: text }),
          },
          ["rule"],
        ),
        (value, at) => {
          const { rule, seLinuxOptions } = Object(value);
          return rule === "MustRunAs" && !seLinuxOptions
            ? `must have seLinuxOptions in ${at}, for MustRunAs`
            : undefined;
        },
      ),
      runAsUser: ruled("MustRunAs", "MustRunAsNonRoot", "RunAsAny"),
      runAsGroup: groupRule,
      supplementalGroups: groupRule,
      fsGroup: groupRule,
      readOnlyRootFilesystem: flag,
      defaultAllowPrivilegeEscalation: flag,
      allowPrivilegeEscalation: flag,
      allowedHostPaths: list(fields({ pathPrefix: path, readOnly: flag }, ["pathPrefix"])),
      allowedFlexVolumes: list(fields({ driver: word }, ["driver"])),
      allowedCSIDrivers: list(fields({ name: word }, ["name"])),
      allowedUnsafeSysctls: sysctls,
      forbiddenSysctls: sysctls,
      allowedProcMountTypes: list(oneOf("Default", "Unmasked")),
      runtimeClass: fields({ allowedRuntimeClassNames: orAll(word), defaultRuntimeClassName: word }, [
        "allowedRuntimeClassNames",
      ]),
    },
    ["seLinux", "runAsUser", "supplementalGroups", "fsGroup"],
  );

  return fields(
    {
      apiVersion: oneOf("policy/v1beta1", "extensions/v1beta1"),
      kind: oneOf("PodSecurityPolicy"),
      metadata,
      spec,
      use: fields({ users: names, groups: names, serviceAccounts: list(account), namespaces: names }),
    },
    ["metadata", "spec"],
  );
};

export const faultOf = ({ policies, accessReviews }: Around["settings"]): string | undefined => {
  if (policies.length === 0) return "must have at least one policy; without any, no pod could be created";
  const seen = new Set<string>();
  const shape = policyShape();
  return first(
    policies.map((policy, index) => {
      const at = `policies[${index}]`;
      const fault = shape(policy, at);
      if (fault !== undefined) return fault;
      const { name } = policy.metadata;
      if (seen.has(name)) return `must have one policy of the name ${name}, not several`;
      seen.add(name);
      return contradiction(policy, `${at} (${name})`) ?? (accessReviews ? undefined : unusable(policy, at));
    }),
  );
};

const unusable = ({ metadata: { name }, use = {} }: Policy, at: string) => {
  const { users = [], groups = [], serviceAccounts = [] } = use;
  return users.length + groups.length + serviceAccounts.length === 0
    ? `must say in ${at}.use who may use ${name}, or have accessReviews: true`
    : undefined;
};

const contradiction = ({ spec }: Policy, at: string) => {
  const { allowedCapabilities = [], defaultAddCapabilities = [], requiredDropCapabilities = [] } = spec;
  if (requiredDropCapabilities.length > 0 && allowedCapabilities.includes("*"))
    return `must have no requiredDropCapabilities beside allowedCapabilities: ["*"], in ${at}`;
  const torn = [...defaultAddCapabilities, ...allowedCapabilities].find((capability) =>
    requiredDropCapabilities.includes(capability),
  );
  if (torn !== undefined) return `must either allow ${torn} or require that it is dropped, in ${at}`;
  if (spec.defaultAllowPrivilegeEscalation && spec.allowPrivilegeEscalation === false)
    return `must allow the privilege escalation that is its default, in ${at}`;
  const overlap = (spec.allowedUnsafeSysctls ?? []).find((one) =>
    spec.forbiddenSysctls?.some((other) => overlaps(one, other)),
  );
  if (overlap !== undefined) return `must either allow or forbid ${overlap}, in ${at}`;
  const { allowedRuntimeClassNames = [], defaultRuntimeClassName } = spec.runtimeClass ?? {};
  const isAllowed = [defaultRuntimeClassName, "*"].some((name) => allowedRuntimeClassNames.includes(name ?? ""));
  if (defaultRuntimeClassName !== undefined && !isAllowed)
    return `must allow the runtime class that is its default, ${defaultRuntimeClassName}, in ${at}`;
};

const overlaps = (one: string, other: string) => {
  const [start, begin] = [one.replace(/\*$/, ""), other.replace(/\*$/, "")];
  if (start === one) return begin === other ? one === other : one.startsWith(begin);
  return begin === other ? other.startsWith(start) : start.startsWith(begin) || begin.startsWith(start);
};
