import type { SELinuxOptions } from "postern/kubernetes/core/v1";
import { quoteAsGo } from "postern/objects/go/quoted";
import {
  type AnyContext,
  buildSecurityContextsCheck,
  chooseSingularOrPlural,
  describeMatchingPodParts,
  formatQuotedNames,
  getContext,
  listNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  quoteAll,
  skipPodsWithUserNamespace,
  skipWindowsPods,
  sortUnique,
} from "./check-builders.ts";

type Profile = { type: string } | undefined;

const isForbiddenProfile = (profile: Profile) => !!profile && !["RuntimeDefault", "Localhost"].includes(profile.type);

const appArmorPrefix = "container.apparmor.security.beta.kubernetes.io/";

/** Reports whether an annotation names a forbidden AppArmor profile. The annotation is older than the field. */
const isForbiddenAnnotation = ([key, value]: [string, string]) =>
  key.startsWith(appArmorPrefix) && value !== "" && value !== "runtime/default" && !value.startsWith("localhost/");

const checkAppArmor: PodSecurityCheckFunction = (subject) => {
  const types = new Set<string>();
  const setters = describeMatchingPodParts(subject, ({ appArmorProfile }) => {
    const isForbidden = isForbiddenProfile(appArmorProfile);
    if (isForbidden) types.add(appArmorProfile?.type ?? "");
    return isForbidden;
  });
  const annotations = Object.entries(subject.annotations)
    .filter(isForbiddenAnnotation)
    .map(([key, value]) => `${key}=${quoteAsGo(value)}`);
  if (setters === "" && annotations.length === 0) return undefined;

  const values = [...sortUnique(types), ...sortUnique(annotations)];
  const all = [
    ...(setters === "" ? [] : [setters]),
    ...(annotations.length > 0 ? [chooseSingularOrPlural(annotations.length, "annotation")] : []),
  ];
  return {
    reason: chooseSingularOrPlural(values.length, "forbidden AppArmor profile"),
    detail: `${all.join(" and ")} must not set AppArmor profile type to ${quoteAll(values)}`,
  };
};
export const appArmorProfile: PodSecurityCheck = { level: "baseline", since: { "1.0": checkAppArmor } };

const checkSeccompAnnotations: PodSecurityCheckFunction = ({ annotations, containers }) => {
  const ofContainers = listNames(containers).map((name) => `container.seccomp.security.alpha.kubernetes.io/${name}`);
  const forbidden = ["seccomp.security.alpha.kubernetes.io/pod", ...ofContainers].flatMap((key) => {
    const value = Object.hasOwn(annotations, key) ? (annotations[key] ?? "") : undefined;
    return value === undefined || isAllowedSeccomp(value) ? [] : [`${key}=${quoteAsGo(value)}`];
  });
  const distinct = sortUnique(forbidden);
  if (distinct.length > 0)
    return {
      reason: "seccompProfile",
      detail: `forbidden ${chooseSingularOrPlural(distinct.length, "annotation")} ${distinct.join(", ")}`,
    };
};

const isAllowedSeccomp = (value: string) =>
  value === "runtime/default" || value === "docker/default" || value.startsWith("localhost/");

const checkSeccomp = buildSecurityContextsCheck(
  "seccompProfile",
  ({ seccompProfile }) => isForbiddenProfile(seccompProfile),
  (setters, forbidden) => {
    const types = forbidden.map(({ seccompProfile }) => seccompProfile?.type ?? "");
    return `${setters} must not set securityContext.seccompProfile.type to ${quoteAll(sortUnique(types))}`;
  },
);
export const seccompProfileBaseline: PodSecurityCheck = {
  level: "baseline",
  since: { "1.0": checkSeccompAnnotations, "1.19": checkSeccomp },
};

const requireSeccomp: PodSecurityCheckFunction = (subject) => {
  const forbidden = checkSeccomp(subject);
  if (forbidden || subject.spec.securityContext?.seccompProfile) return forbidden;

  const without = listNames(subject.containers.filter((container) => !getContext(container).seccompProfile));
  if (without.length > 0)
    return {
      reason: "seccompProfile",
      detail: `pod or ${formatQuotedNames("container", without)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"`,
    };
};
export const seccompProfileRestricted: PodSecurityCheck = {
  level: "restricted",
  since: { "1.19": requireSeccomp, "1.25": skipWindowsPods(requireSeccomp) },
  insteadOf: seccompProfileBaseline,
};

const buildSeLinuxCheck = (...types: string[]): PodSecurityCheckFunction => {
  const allowed = new Set(["", "container_t", "container_init_t", "container_kvm_t", ...types]);
  const hasOtherType = ({ type = "" }: SELinuxOptions) => !allowed.has(type);
  const isForbidden = ({ seLinuxOptions }: AnyContext) =>
    !!seLinuxOptions && (hasOtherType(seLinuxOptions) || !!seLinuxOptions.user || !!seLinuxOptions.role);

  return buildSecurityContextsCheck("seLinuxOptions", isForbidden, (setters, forbidden) => {
    const options = forbidden.map(({ seLinuxOptions }) => seLinuxOptions ?? {});
    const others = sortUnique(options.filter(hasOtherType).map(({ type = "" }) => type));
    const found = [
      ...(others.length > 0 ? [formatQuotedNames("type", others)] : []),
      ...(options.some(({ user }) => user) ? ["user may not be set"] : []),
      ...(options.some(({ role }) => role) ? ["role may not be set"] : []),
    ];
    return `${setters} set forbidden securityContext.seLinuxOptions: ${found.join("; ")}`;
  });
};
export const seLinuxOptions: PodSecurityCheck = {
  level: "baseline",
  since: { "1.0": buildSeLinuxCheck(), "1.31": buildSeLinuxCheck("container_engine_t") },
};

const checkHostProcess = buildSecurityContextsCheck(
  "hostProcess",
  ({ windowsOptions }) => windowsOptions?.hostProcess === true,
  (setters) => `${setters} must not set securityContext.windowsOptions.hostProcess=true`,
);
export const windowsHostProcess: PodSecurityCheck = { level: "baseline", since: { "1.0": checkHostProcess } };

const checkRunAsRoot = buildSecurityContextsCheck(
  "runAsNonRoot != true",
  ({ runAsNonRoot }) => runAsNonRoot === false,
  (setters) => `${setters} must not set securityContext.runAsNonRoot=false`,
);
const requireNonRoot: PodSecurityCheckFunction = (subject) => {
  const found = checkRunAsRoot(subject);
  if (found || subject.spec.securityContext?.runAsNonRoot === true) return found;

  const without = listNames(subject.containers.filter((container) => getContext(container).runAsNonRoot === undefined));
  if (without.length > 0)
    return {
      reason: "runAsNonRoot != true",
      detail: `pod or ${formatQuotedNames("container", without)} must set securityContext.runAsNonRoot=true`,
    };
};
export const runAsNonRoot: PodSecurityCheck = {
  level: "restricted",
  since: { "1.0": requireNonRoot, "1.35": skipPodsWithUserNamespace(requireNonRoot) },
};

const checkUser = buildSecurityContextsCheck(
  "runAsUser=0",
  (context) => context.runAsUser === 0,
  (setters) => `${setters} must not set runAsUser=0`,
);
export const runAsUser: PodSecurityCheck = {
  level: "restricted",
  since: { "1.23": checkUser, "1.35": skipPodsWithUserNamespace(checkUser) },
};
