import { goQuoted } from "postern/objects/quoted";
import { type Check, type Context, contextOf, contextsOf, type Judge, namesOf, unlessOnWindows } from "./check.ts";
import { listed, plural, quoted, settersOf, sorted } from "./wording.ts";

const reason = "seccompProfile";

/** As it was said before there were fields for it. */
const ofPod = "seccomp.security.alpha.kubernetes.io/pod";
const ofContainer = "container.seccomp.security.alpha.kubernetes.io/";

const judgeAnnotations: Judge = ({ annotations, containers }) => {
  const forbidden = [ofPod, ...namesOf(containers).map((name) => ofContainer + name)].flatMap((key) => {
    const value = Object.hasOwn(annotations, key) ? (annotations[key] ?? "") : undefined;
    return value === undefined || isAllowedAnnotation(value) ? [] : [`${key}=${goQuoted(value)}`];
  });
  const distinct = sorted(forbidden);
  if (distinct.length > 0)
    return { reason, detail: `forbidden ${plural(distinct.length, "annotation")} ${distinct.join(", ")}` };
};

const isAllowedAnnotation = (value: string) =>
  value === "runtime/default" || value === "docker/default" || value.startsWith("localhost/");

const isAllowed = ({ seccompProfile }: Context) =>
  !!seccompProfile && ["RuntimeDefault", "Localhost"].includes(seccompProfile.type);
const isForbidden = (context: Context) => !!context.seccompProfile && !isAllowed(context);

const judgeFields: Judge = (subject) => {
  const setters = settersOf(subject, isForbidden);
  if (setters === "") return undefined;

  const types = contextsOf(subject)
    .filter(isForbidden)
    .map(({ seccompProfile }) => seccompProfile?.type ?? "");
  return { reason, detail: `${setters} must not set securityContext.seccompProfile.type to ${quoted(sorted(types))}` };
};

const requireFields: Judge = (subject) => {
  const forbidden = judgeFields(subject);
  if (forbidden || isAllowed(subject.spec.securityContext ?? {})) return forbidden;

  const without = namesOf(subject.containers.filter((container) => !contextOf(container).seccompProfile));
  if (without.length > 0)
    return {
      reason,
      detail: `pod or ${listed("container", without)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"`,
    };
};

export const seccompProfileBaseline: Check = {
  level: "baseline",
  since: { "1.0": judgeAnnotations, "1.19": judgeFields },
};

export const seccompProfileRestricted: Check = {
  level: "restricted",
  since: { "1.19": requireFields, "1.25": unlessOnWindows(requireFields) },
  insteadOf: seccompProfileBaseline,
};
