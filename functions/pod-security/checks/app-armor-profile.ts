import { goQuoted } from "postern/objects/quoted";
import { type Check, type Context, contextsOf, type Judge } from "./check.ts";
import { plural, quoted, settersOf, sorted } from "./wording.ts";

const prefix = "container.apparmor.security.beta.kubernetes.io/";

const isForbidden = ({ appArmorProfile }: Context) =>
  !!appArmorProfile && !["RuntimeDefault", "Localhost"].includes(appArmorProfile.type);

/** As it was said before there were fields for it. */
const isForbiddenAnnotation = ([key, value]: [string, string]) =>
  key.startsWith(prefix) && value !== "" && value !== "runtime/default" && !value.startsWith("localhost/");

const judge: Judge = (subject) => {
  const setters = settersOf(subject, isForbidden);
  const annotations = Object.entries(subject.annotations)
    .filter(isForbiddenAnnotation)
    .map(([key, value]) => `${key}=${goQuoted(value)}`);
  if (setters === "" && annotations.length === 0) return undefined;

  const types = contextsOf(subject)
    .filter(isForbidden)
    .map(({ appArmorProfile }) => appArmorProfile?.type ?? "");
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

export const appArmorProfile: Check = { level: "baseline", since: { "1.0": judge } };
