import { toList, toMap } from "../../json.ts";
import type { ResourceType } from "../../needs.ts";
import { splitApiVersion } from "../../objects/api-version.ts";
import { toPlural } from "../../recording/recorded-answers.ts";

export interface ReferencedKind {
  apiVersion: string;
  kind: string;
}

/** The kinds of the objects that usually own an object, by the kind of that object. */
const ownerKinds: Record<string, ReferencedKind[]> = {
  Pod: ["ReplicaSet", "StatefulSet", "DaemonSet"]
    .map((kind) => ({ apiVersion: "apps/v1", kind }))
    .concat({ apiVersion: "batch/v1", kind: "Job" }),
  ReplicaSet: [{ apiVersion: "apps/v1", kind: "Deployment" }],
  Job: [{ apiVersion: "batch/v1", kind: "CronJob" }],
};

/**
 * Lists the kinds that a policy's references read: those that it names, and kinds of owners of the kinds that it
 * selects. Secrets are left out.
 */
export const listReferencedKinds = (policy: unknown): ReferencedKind[] => {
  const { resourceSelectors, overrideRules, validateRules } = toMap(toMap(policy).spec);
  const templates = toList(overrideRules).map((rule) => toMap(toMap(rule).overriders).template);
  const conditions = toList(validateRules).map((rule) => toMap(toMap(rule).template).condition);
  const references = [...templates, ...conditions]
    .flatMap((template) => [toMap(template).valueRef, toMap(template).dataRef])
    .map(toMap);
  const namedKinds = references.filter(({ from }) => from === "k8s").map(({ k8s }) => k8s);
  const usualOwnerKinds = references.some(({ from }) => from === "owner")
    ? toList(resourceSelectors).flatMap((selector) => {
        const { kind } = toMap(selector);
        return typeof kind === "string" && Object.hasOwn(ownerKinds, kind) ? ownerKinds[kind] : [];
      })
    : [];
  return [...namedKinds, ...usualOwnerKinds].filter(hasValidApiVersionAndKind).filter((kind) => !isSecret(kind));
};

/** Reports whether a kind is Secret. Its plural is compared, because the kind `secret` is read as `secrets`, too. */
const isSecret = ({ apiVersion, kind }: ReferencedKind) => !apiVersion.includes("/") && toPlural(kind) === "secrets";

/** Lists the resources that policies' references read. Plurals are guessed as for Kubernetes' own kinds. */
export const guessReferencedResources = (policies: readonly unknown[]): ResourceType[] =>
  policies
    .flatMap(listReferencedKinds)
    .map(({ apiVersion, kind }) => ({ ...splitApiVersion(apiVersion), resource: toPlural(kind) }));

export const hasScript = (policy: unknown): boolean => {
  const { overrideRules, validateRules } = toMap(toMap(policy).spec);
  const places = [...toList(overrideRules).map((rule) => toMap(rule).overriders), ...toList(validateRules)];
  return places.some((place) => Boolean(toMap(place).cue));
};

/** Reports whether a value has a valid apiVersion and kind. It may be any JSON, as in a policy of a cluster. */
export const hasValidApiVersionAndKind = (value: unknown): value is ReferencedKind => {
  const { apiVersion, kind } = toMap(value);
  return (
    typeof apiVersion === "string" &&
    typeof kind === "string" &&
    versionPattern.test(apiVersion) &&
    kindPattern.test(kind)
  );
};
const versionPattern = /^([a-z0-9][a-z0-9.-]{0,252}\/)?[a-z0-9][a-z0-9-]{0,62}$/;
const kindPattern = /^[a-z][a-z0-9-]{0,62}$/i;
