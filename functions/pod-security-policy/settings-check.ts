import { isMap, toList, toMap } from "postern/json";
import type { PodSecurityPolicyObject } from "./policy.ts";
import type { PodSecurityPolicyContext } from "./policy-choice.ts";
import { parseProfileAnnotation } from "./profiles.ts";
import { volumeTypes } from "./volumes.ts";

/** Returns what is wrong with a value; `path` is the value's path in the settings. */
type Check = (value: unknown, path: string) => string | undefined;

const printValue = (value: unknown) => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
};

const expectValue =
  (expected: string, isValid: (value: unknown) => boolean): Check =>
  (value, path) =>
    isValid(value) ? undefined : `must have ${expected} as ${path}, not ${printValue(value)}`;

const expectText = (expected: string, isValid: (text: string) => boolean): Check =>
  expectValue(expected, (value) => typeof value === "string" && isValid(value));

/** Returns a check that runs the given checks one after the other, and ends at the first one that finds a mistake. */
const checkInTurn =
  (...checks: Check[]): Check =>
  (value, path) => {
    for (const check of checks) {
      const fault = check(value, path);
      if (fault !== undefined) return fault;
    }
  };

const checkFlag = expectValue("true or false", (value) => typeof value === "boolean");
const checkText = expectText("a string", () => true);
const checkWord = expectText("a string that isn't empty", (text) => text !== "");
const checkChoice = (...texts: string[]) => expectText(`one of ${texts.join(", ")}`, (text) => texts.includes(text));
const checkNumber = (most: number) =>
  expectValue(
    `a whole number from 0 to ${most}`,
    (value) => Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= most,
  );

const findFault = (faults: (string | undefined)[]) => faults.find((fault) => fault !== undefined);

const checkList = (check: Check): Check =>
  checkInTurn(expectValue("a list", Array.isArray), (value, path) =>
    findFault(toList(value).map((element, index) => check(element, `${path}[${index}]`))),
  );

/**
 * Returns a check of a map in the settings: of its members, by `checks`, and last of the whole map, by `checkMap`. It
 * refuses unknown members, because a typing error in a name must not weaken a policy.
 */
const checkMembers = (checks: Record<string, Check>, required: string[] = [], checkMap: Check = () => undefined) =>
  checkInTurn(
    expectValue("a map", isMap),
    (value, path) => {
      const missing = required.find((key) => !Object.hasOwn(toMap(value), key));
      if (missing !== undefined) return `must have ${missing} in ${path}`;
      const checkMember = ([key, member]: [string, unknown]) =>
        Object.hasOwn(checks, key)
          ? checks[key]?.(member, `${path}.${key}`)
          : `must have no ${printValue(key)} in ${path}; the known members are ${Object.keys(checks).join(", ")}`;
      return findFault(Object.entries(toMap(value)).map(checkMember));
    },
    checkMap,
  );

/** Returns a check for a list of ranges such as { min: 80, max: 90 }, with numbers up to `most`. */
const checkRanges = (most = Number.MAX_SAFE_INTEGER) =>
  checkList(
    checkMembers({ min: checkNumber(most), max: checkNumber(most) }, ["min", "max"], (value, path) => {
      const { min, max } = toMap(value);
      return Number(min) <= Number(max)
        ? undefined
        : `must have a min that isn't greater than the max in ${path}, not ${printValue(value)}`;
    }),
  );

const checkIdRule = (...rules: string[]) =>
  checkMembers({ rule: checkChoice(...rules), ranges: checkRanges() }, ["rule"], (value, path) => {
    const { rule, ranges } = toMap(value);
    return (rule === "MustRunAs" || rule === "MayRunAs") && toList(ranges).length === 0
      ? `must have at least one range in ${path}, for ${rule}`
      : undefined;
  });

const checkPath = expectText('a path without ".."', (text) => text !== "" && !text.split("/").includes(".."));
const checkSysctl = expectText(
  "a sysctl, or the beginning of one and *",
  (text) => text.length <= 253 && /^[-_.a-z0-9]*[a-z0-9*]$/.test(text),
);
const isProfile = (text: string) => text === "*" || parseProfileAnnotation(text) !== undefined;
const checkProfiles = expectText(
  "runtime/default, docker/default, unconfined or localhost/… (or several, a comma between)",
  (text) => text === "" || text.split(",").every(isProfile),
);
const checkAccount = expectText('"namespace:name"', (text) => /^[^:]+:[^:]+$/.test(text));
const checkName = expectText(
  "a name in lower case",
  (text) => text.length <= 253 && /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/.test(text),
);

const profilePrefixes = ["seccomp.security.alpha.kubernetes.io/", "apparmor.security.beta.kubernetes.io/"];

const checkAnnotations: Check = checkInTurn(expectValue("a map", isMap), (value, path) =>
  findFault(
    Object.entries(toMap(value)).map(([key, text]) =>
      (profilePrefixes.some((prefix) => key.startsWith(prefix)) ? checkProfiles : checkText)(text, `${path}["${key}"]`),
    ),
  ),
);

/** Checks the name and annotations in a policy's metadata. Other members of upstream's metadata are allowed. */
const checkMetadata: Check = checkInTurn(expectValue("a map", isMap), (value, path) => {
  const { name, annotations = {} } = toMap(value);
  return checkName(name, `${path}.name`) ?? checkAnnotations(annotations, `${path}.annotations`);
});

const checkPatterns = (check: Check): Check =>
  checkInTurn(checkList(check), (value, path) =>
    Array.isArray(value) && value.includes("*") && value.length > 1
      ? `must have no other element beside * in ${path}`
      : undefined,
  );

const checkGroup = checkIdRule("MustRunAs", "MayRunAs", "RunAsAny");
const checkSysctls = checkPatterns(checkSysctl);
const checkNames = checkList(checkWord);

/** Checks the types, values and required fields of a policy's spec. */
const checkSpec = checkMembers(
  {
    privileged: checkFlag,
    defaultAddCapabilities: checkNames,
    requiredDropCapabilities: checkNames,
    allowedCapabilities: checkNames,
    volumes: checkList(checkChoice("*", ...volumeTypes)),
    hostNetwork: checkFlag,
    hostPorts: checkRanges(65_535),
    hostPID: checkFlag,
    hostIPC: checkFlag,
    seLinux: checkMembers(
      {
        rule: checkChoice("MustRunAs", "RunAsAny"),
        seLinuxOptions: checkMembers({ level: checkText, role: checkText, type: checkText, user: checkText }),
      },
      ["rule"],
      (value, path) => {
        const { rule, seLinuxOptions } = toMap(value);
        if (rule === "MustRunAs" && !seLinuxOptions) return `must have seLinuxOptions in ${path}, for MustRunAs`;
      },
    ),
    runAsUser: checkIdRule("MustRunAs", "MustRunAsNonRoot", "RunAsAny"),
    runAsGroup: checkGroup,
    supplementalGroups: checkGroup,
    fsGroup: checkGroup,
    readOnlyRootFilesystem: checkFlag,
    defaultAllowPrivilegeEscalation: checkFlag,
    allowPrivilegeEscalation: checkFlag,
    allowedHostPaths: checkList(checkMembers({ pathPrefix: checkPath, readOnly: checkFlag }, ["pathPrefix"])),
    allowedFlexVolumes: checkList(checkMembers({ driver: checkWord }, ["driver"])),
    allowedCSIDrivers: checkList(checkMembers({ name: checkWord }, ["name"])),
    allowedUnsafeSysctls: checkSysctls,
    forbiddenSysctls: checkSysctls,
    allowedProcMountTypes: checkList(checkChoice("Default", "Unmasked")),
    runtimeClass: checkMembers(
      { allowedRuntimeClassNames: checkPatterns(checkWord), defaultRuntimeClassName: checkWord },
      ["allowedRuntimeClassNames"],
    ),
  },
  ["seLinux", "runAsUser", "supplementalGroups", "fsGroup"],
);

/** Checks a policy in the settings, and its member `use`, which says who may use the policy. */
const checkPolicy = checkMembers(
  {
    apiVersion: checkChoice("policy/v1beta1", "extensions/v1beta1"),
    kind: checkChoice("PodSecurityPolicy"),
    metadata: checkMetadata,
    spec: checkSpec,
    use: checkMembers({
      users: checkNames,
      groups: checkNames,
      serviceAccounts: checkList(checkAccount),
      namespaces: checkNames,
    }),
  },
  ["metadata", "spec"],
);

/** Returns what is wrong with the rule's settings; undefined if nothing is wrong. */
export const findSecurityPolicySettingsFault = ({
  policies,
  accessReviews,
}: PodSecurityPolicyContext["settings"]): string | undefined => {
  if (policies.length === 0) return "must have at least one policy; without any, no pod could be created";
  const names = new Set<string>();
  return findFault(
    policies.map((policy, index) => {
      const path = `policies[${index}]`;
      const fault = checkPolicy(policy, path);
      if (fault !== undefined) return fault;
      const { name } = policy.metadata;
      if (names.has(name)) return `must have one policy of the name ${name}, not several`;
      names.add(name);
      return findContradiction(policy, `${path} (${name})`) ?? (accessReviews ? undefined : checkGrants(policy, path));
    }),
  );
};

const checkGrants = ({ use = {} }: PodSecurityPolicyObject, path: string) => {
  const { users = [], groups = [], serviceAccounts = [] } = use;
  return users.length + groups.length + serviceAccounts.length === 0
    ? `must list users, groups or service accounts in ${path}.use, or have accessReviews: true`
    : undefined;
};

/** Returns a sentence about two fields of a policy that contradict each other. */
const findContradiction = ({ spec }: PodSecurityPolicyObject, path: string) => {
  const { allowedCapabilities = [], defaultAddCapabilities = [], requiredDropCapabilities = [] } = spec;
  if (requiredDropCapabilities.length > 0 && allowedCapabilities.includes("*"))
    return `must have no requiredDropCapabilities beside allowedCapabilities: ["*"], in ${path}`;
  const conflict = [...defaultAddCapabilities, ...allowedCapabilities].find((capability) =>
    requiredDropCapabilities.includes(capability),
  );
  if (conflict !== undefined) return `must either allow ${conflict} or require that it is dropped, in ${path}`;
  if (spec.defaultAllowPrivilegeEscalation && spec.allowPrivilegeEscalation === false)
    return `must allow the privilege escalation that is its default, in ${path}`;
  const overlap = (spec.allowedUnsafeSysctls ?? []).find((allowed) =>
    spec.forbiddenSysctls?.some((forbidden) => doPatternsOverlap(allowed, forbidden)),
  );
  if (overlap !== undefined) return `must either allow or forbid ${overlap}, in ${path}`;
  const { allowedRuntimeClassNames = [], defaultRuntimeClassName } = spec.runtimeClass ?? {};
  const isAllowed = [defaultRuntimeClassName, "*"].some((name) => allowedRuntimeClassNames.includes(name ?? ""));
  if (defaultRuntimeClassName !== undefined && !isAllowed)
    return `must allow the runtime class that is its default, ${defaultRuntimeClassName}, in ${path}`;
};

/** Reports whether a name can match both patterns, such as `kernel.*` and `kernel.sem`. */
const doPatternsOverlap = (left: string, right: string) => {
  const [leftStart, rightStart] = [left.replace(/\*$/, ""), right.replace(/\*$/, "")];
  if (leftStart === left) return rightStart === right ? left === right : left.startsWith(rightStart);
  return rightStart === right
    ? right.startsWith(leftStart)
    : leftStart.startsWith(rightStart) || rightStart.startsWith(leftStart);
};
