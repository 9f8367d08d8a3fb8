import { isVersion, type PodSecurityLabel, podSecurityLevels, podSecurityModes } from "./policy.ts";

/** The rule's settings: the configuration of the plugin PodSecurity, and Postern's own `namesExistingPods`. */
export interface PodSecuritySettings {
  defaults: Record<PodSecurityLabel, string>;
  exemptions: { usernames: string[]; runtimeClasses: string[]; namespaces: string[] };
  /** If true, the warnings about a stricter level name the existing pods that violate it. */
  namesExistingPods: boolean;
}

export const defaultPodSecuritySettings: PodSecuritySettings = {
  defaults: {
    enforce: "privileged",
    "enforce-version": "latest",
    audit: "privileged",
    "audit-version": "latest",
    warn: "privileged",
    "warn-version": "latest",
  },
  exemptions: { usernames: [], runtimeClasses: [], namespaces: [] },
  namesExistingPods: false,
};

/** The settings with a level. An empty text counts as absent. */
export const podSecurityLevelChoices = Object.fromEntries(
  podSecurityModes.map((mode) => [`defaults.${mode}`, [...podSecurityLevels, ""]]),
);

const label = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const isSubdomain = (text: string) => text.length <= 253 && text.split(".").every((part) => label.test(part));

/** Which names each list of `exemptions` may contain, and the words for them in a fault. */
const exemptionRules: Record<
  keyof PodSecuritySettings["exemptions"],
  { isValid(text: string): boolean; description: string }
> = {
  usernames: { isValid: (text) => text !== "" && text.isWellFormed(), description: "names of users" },
  runtimeClasses: { isValid: isSubdomain, description: "names of RuntimeClasses" },
  namespaces: { isValid: (text) => label.test(text), description: "names of namespaces" },
};

/** Describes what is wrong with the rule's settings; undefined if nothing. An empty text in `defaults` is valid. */
export const findSettingsFault = ({ defaults, exemptions }: PodSecuritySettings): string | undefined => {
  for (const mode of podSecurityModes) {
    const version = defaults[`${mode}-version`];
    if (version !== "" && !isVersion(version))
      return `must have latest or v1.x as defaults.${mode}-version, not ${JSON.stringify(version)}`;
  }
  for (const kind of ["usernames", "runtimeClasses", "namespaces"] as const) {
    const { isValid, description } = exemptionRules[kind];
    const wrong = exemptions[kind].find(
      (value: unknown, index, values) => typeof value !== "string" || !isValid(value) || values.indexOf(value) < index,
    );
    if (wrong !== undefined)
      return `must list ${description} under exemptions.${kind}, each once, not ${JSON.stringify(wrong)}`;
  }
};
