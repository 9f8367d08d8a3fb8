import type { FieldError } from "postern/refusals";

export const podSecurityLevels = ["privileged", "baseline", "restricted"] as const;
export type PodSecurityLevel = (typeof podSecurityLevels)[number];
export type PodSecurityVersion = "latest" | `v1.${number}`;

/** The modes of Pod Security admission, each of which has its own namespace labels. */
export const podSecurityModes = ["enforce", "audit", "warn"] as const;
export type PodSecurityMode = (typeof podSecurityModes)[number];

export interface PodSecurityLevelAndVersion {
  level: PodSecurityLevel;
  version: PodSecurityVersion;
}
export type NamespacePolicy = Record<PodSecurityMode, PodSecurityLevelAndVersion>;

export type NamespaceLabels = Readonly<Record<string, string>>;
export type PodSecurityLabel = PodSecurityMode | `${PodSecurityMode}-version`;

export const toLabelKey = (label: PodSecurityLabel) => `pod-security.kubernetes.io/${label}`;

export const hasLabel = (labels: NamespaceLabels, label: PodSecurityLabel) => Object.hasOwn(labels, toLabelKey(label));

export const isLevel = (text: string): text is PodSecurityLevel => podSecurityLevels.some((level) => level === text);
export const isVersion = (text: string): text is PodSecurityVersion =>
  // kube-apiserver parses the minor version into a signed 64-bit integer, so larger ones are invalid.
  text === "latest" || (/^v1\.(0|[1-9][0-9]{0,18})$/.test(text) && BigInt(text.slice(3)) < 2n ** 63n);

const mustBeLevel = `must be one of ${podSecurityLevels.join(", ")}`;
const mustBeVersion = 'must be "latest" or "v1.x"';

/** Returns the Pod Security policy that a namespace's labels choose, with defaults for missing labels; and faults. */
export const parseNamespacePolicy = (labels: NamespaceLabels, defaults: NamespacePolicy) => {
  const faults: FieldError[] = [];
  const readLabel = <T extends string>(
    label: PodSecurityLabel,
    isValid: (text: string) => text is T,
    detail: string,
    fallback: T,
  ) => {
    const value = labels[toLabelKey(label)] ?? "";
    if (isValid(value)) return value;
    faults.push({ field: `metadata.labels[${toLabelKey(label)}]`, type: "Invalid value", value, detail });
    return fallback;
  };
  const readMode = (mode: PodSecurityMode, fallback: PodSecurityLevel): PodSecurityLevelAndVersion => ({
    level: hasLabel(labels, mode) ? readLabel(mode, isLevel, mustBeLevel, fallback) : defaults[mode].level,
    version: hasLabel(labels, `${mode}-version`)
      ? readLabel(`${mode}-version`, isVersion, mustBeVersion, "latest")
      : defaults[mode].version,
  });

  // An invalid enforce label means restricted; an invalid audit or warn label means privileged.
  const enforce = readMode("enforce", "restricted");
  const isEnforced = hasLabel(labels, "enforce") && isLevel(labels[toLabelKey("enforce")] ?? "");
  const audit = readMode("audit", "privileged");
  const warn = readMode("warn", "privileged");
  // Without a warn label, the level of the enforce label also applies to warnings, so that authors of workloads get
  // warnings before the pods are created.
  if (!hasLabel(labels, "warn") && isEnforced && isStricter(enforce.level, warn.level)) {
    warn.level = enforce.level;
    if (!hasLabel(labels, "warn-version")) warn.version = enforce.version;
  }
  return { policy: { enforce, audit, warn }, faults };
};

export const isStricter = (left: PodSecurityLevel, right: PodSecurityLevel) =>
  podSecurityLevels.indexOf(left) > podSecurityLevels.indexOf(right);

/** Reports whether a policy's level is `privileged` in all of these modes, so that no check is needed. */
export const arePodSecurityModesPrivileged = (
  policy: NamespacePolicy,
  modes: readonly PodSecurityMode[] = podSecurityModes,
) => modes.every((mode) => policy[mode].level === "privileged");

export const formatLevelAndVersion = ({ level, version }: PodSecurityLevelAndVersion) => `${level}:${version}`;

/** Returns the settings' policy for namespaces without labels. Empty levels mean privileged, empty versions latest. */
export const getDefaultPolicy = ({
  defaults,
}: {
  defaults: Readonly<Record<PodSecurityLabel, string>>;
}): NamespacePolicy => {
  const readDefault = (mode: PodSecurityMode): PodSecurityLevelAndVersion => {
    const [level, version] = [defaults[mode], defaults[`${mode}-version`]];
    return { level: isLevel(level) ? level : "privileged", version: isVersion(version) ? version : "latest" };
  };
  return { enforce: readDefault("enforce"), audit: readDefault("audit"), warn: readDefault("warn") };
};
