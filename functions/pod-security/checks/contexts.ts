import type { SELinuxOptions } from "kubernetes-types/core/v1.d.ts";
import { goQuoted } from "postern/objects/go-quoted";
import {
  type Check,
  type Context,
  contextOf,
  type Judge,
  judgeContexts,
  listed,
  namesOf,
  plural,
  quoted,
  settersOf,
  sorted,
  unlessAmongOwnUsers,
  unlessOnWindows,
} from "./check-builders.ts";

type Profile = { type: string } | undefined;

const isForbiddenProfile = (profile: Profile) => !!profile && !["RuntimeDefault", "Localhost"].includes(profile.type);

const ofAppArmor = "container.apparmor.security.beta.kubernetes.io/";

/** Before the field existed, the profile was an annotation. */
const isForbiddenAnnotation = ([key, value]: [string, string]) =>
  key.startsWith(ofAppArmor) && value !== "" && value !== "runtime/default" && !value.startsWith("localhost/");

const judgeAppArmor: Judge = (subject) => {
  const types = new Set<string>();
  const setters = settersOf(subject, ({ appArmorProfile }) => {
    const isForbidden = isForbiddenProfile(appArmorProfile);
    if (isForbidden) types.add(appArmorProfile?.type ?? "");
    return isForbidden;
  });
  const annotations = Object.entries(subject.annotations)
    .filter(isForbiddenAnnotation)
    .map(([key, value]) => `${key}=${goQuoted(value)}`);
  if (setters === "" && annotations.length === 0) return undefined;

  const values = [...sorted(types), ...sorted(annotations)];
  const all = [
    ...(setters === "" ? [] : [setters]),
    ...(annotations.length > 0 ? [plural(annotations.length, "annotation")] : []),
  ];
  return {
    reason: plural(values.length, "forbidden AppArmor profile"),
    detail: `${all.join(" and ")} must not set AppArmor profile type to ${quoted(values)}`,
  };
};
export const appArmorProfile: Check = { level: "baseline", since: { "1.0": judgeAppArmor } };

const judgeSeccompAnnotations: Judge = ({ annotations, containers }) => {
  const ofContainers = namesOf(containers).map((name) => `container.seccomp.security.alpha.kubernetes.io/${name}`);
  const forbidden = ["seccomp.security.alpha.kubernetes.io/pod", ...ofContainers].flatMap((key) => {
    const value = Object.hasOwn(annotations, key) ? (annotations[key] ?? "") : undefined;
    return value === undefined || isAllowedSeccomp(value) ? [] : [`${key}=${goQuoted(value)}`];
  });
  const distinct = sorted(forbidden);
  if (distinct.length > 0)
    return {
      reason: "seccompProfile",
      detail: `forbidden ${plural(distinct.length, "annotation")} ${distinct.join(", ")}`,
    };
};

const isAllowedSeccomp = (value: string) =>
  value === "runtime/default" || value === "docker/default" || value.startsWith("localhost/");

const judgeSeccomp = judgeContexts(
  "seccompProfile",
  ({ seccompProfile }) => isForbiddenProfile(seccompProfile),
  (setters, forbidden) => {
    const types = forbidden.map(({ seccompProfile }) => seccompProfile?.type ?? "");
    return `${setters} must not set securityContext.seccompProfile.type to ${quoted(sorted(types))}`;
  },
);
export const seccompProfileBaseline: Check = {
  level: "baseline",
  since: { "1.0": judgeSeccompAnnotations, "1.19": judgeSeccomp },
};

const requireSeccomp: Judge = (subject) => {
  const forbidden = judgeSeccomp(subject);
  if (forbidden || subject.spec.securityContext?.seccompProfile) return forbidden;

  const without = namesOf(subject.containers.filter((container) => !contextOf(container).seccompProfile));
  if (without.length > 0)
    return {
      reason: "seccompProfile",
      detail: `pod or ${listed("container", without)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"`,
    };
};
export const seccompProfileRestricted: Check = {
  level: "restricted",
  since: { "1.19": requireSeccomp, "1.25": unlessOnWindows(requireSeccomp) },
  insteadOf: seccompProfileBaseline,
};

const judgeSeLinux = (...types: string[]): Judge => {
  const allowed = new Set(["", "container_t", "container_init_t", "container_kvm_t", ...types]);
  const hasOtherType = ({ type = "" }: SELinuxOptions) => !allowed.has(type);
  const isForbidden = ({ seLinuxOptions }: Context) =>
    !!seLinuxOptions && (hasOtherType(seLinuxOptions) || !!seLinuxOptions.user || !!seLinuxOptions.role);

  return judgeContexts("seLinuxOptions", isForbidden, (setters, forbidden) => {
    const options = forbidden.map(({ seLinuxOptions }) => seLinuxOptions ?? {});
    const others = sorted(options.filter(hasOtherType).map(({ type = "" }) => type));
    const found = [
      ...(others.length > 0 ? [listed("type", others)] : []),
      ...(options.some(({ user }) => user) ? ["user may not be set"] : []),
      ...(options.some(({ role }) => role) ? ["role may not be set"] : []),
    ];
    return `${setters} set forbidden securityContext.seLinuxOptions: ${found.join("; ")}`;
  });
};
export const seLinuxOptions: Check = {
  level: "baseline",
  since: { "1.0": judgeSeLinux(), "1.31": judgeSeLinux("container_engine_t") },
};

const judgeHostProcess = judgeContexts(
  "hostProcess",
  ({ windowsOptions }) => windowsOptions?.hostProcess === true,
  (setters) => `${setters} must not set securityContext.windowsOptions.hostProcess=true`,
);
export const windowsHostProcess: Check = { level: "baseline", since: { "1.0": judgeHostProcess } };

const judgeRoot = judgeContexts(
  "runAsNonRoot != true",
  ({ runAsNonRoot }) => runAsNonRoot === false,
  (setters) => `${setters} must not set securityContext.runAsNonRoot=false`,
);
const requireNonRoot: Judge = (subject) => {
  const found = judgeRoot(subject);
  if (found || subject.spec.securityContext?.runAsNonRoot === true) return found;

  const without = namesOf(subject.containers.filter((container) => contextOf(container).runAsNonRoot === undefined));
  if (without.length > 0)
    return {
      reason: "runAsNonRoot != true",
      detail: `pod or ${listed("container", without)} must set securityContext.runAsNonRoot=true`,
    };
};
export const runAsNonRoot: Check = {
  level: "restricted",
  since: { "1.0": requireNonRoot, "1.35": unlessAmongOwnUsers(requireNonRoot) },
};

const judgeUser = judgeContexts(
  "runAsUser=0",
  (context) => context.runAsUser === 0,
  (setters) => `${setters} must not set runAsUser=0`,
);
export const runAsUser: Check = {
  level: "restricted",
  since: { "1.23": judgeUser, "1.35": unlessAmongOwnUsers(judgeUser) },
};
