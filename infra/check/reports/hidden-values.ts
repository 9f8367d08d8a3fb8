import type { HookTraceStep } from "#infra/apiserver/admission/types.ts";
import { getOwn, isMap, isObject, lookUp, parsePointer, toMap } from "#lib/json.ts";
import { mask } from "#lib/masking/masked-text.ts";
import {
  hideInSentences,
  hideInValue,
  hideSecretValues,
  isSecret,
  lastAppliedAnnotation,
} from "../../diff/secret-values.ts";
import type { ObjectEvaluation } from "../evaluation/object-evaluation.ts";
import { isReview } from "../evaluation/requests.ts";

/**
 * Returns an evaluation without the values of Secrets: in the sentences of rules, webhooks and the API server, in
 * patches and in objects. Every report is made from it. `read` are Secrets that rules have read, for whatever object.
 */
export const hideSecretsInEvaluation = (
  evaluation: ObjectEvaluation,
  read: Iterable<unknown> = [],
): ObjectEvaluation => {
  const { subject, checked, steps, before, after } = evaluation;
  const { manifest, attributes } = subject;
  const request = isReview(manifest) ? getOwn(manifest.object, "request") : { object: manifest.object };
  // Only a step with a request may have an object before and after a change.
  const stepsWithRequest = steps.filter((step) => step.request !== undefined);
  const requests = [request, attributes, ...stepsWithRequest.map((step) => step.request)];
  const shownObjects = new Set<unknown>([before, after]);
  for (const step of stepsWithRequest) shownObjects.add(step.before).add(step.after);
  for (const each of requests) shownObjects.add(getOwn(each, "object")).add(getOwn(each, "oldObject"));
  const objects = [...shownObjects].filter(isMap);
  // An object of a review may lack its kind, which its request has. `hideSecretValues` needs the kind in the object.
  const isAboutSecret = objects.some(isSecret) || requests.some((each) => isSecret(getOwn(each, "kind")));
  const readSecrets = [...read];
  // kubectl's annotation has a copy of an object, and so may have values of a Secret.
  const hasLastAppliedCopy = objects.some(
    (object) => getOwn(toMap(object.metadata).annotations, lastAppliedAnnotation) !== undefined,
  );
  // Most evaluations have nothing to hide.
  const isWithoutSecrets = !isAboutSecret && !hasLastAppliedCopy && readSecrets.length === 0;
  if (isWithoutSecrets && checked.changes.length === 0) return evaluation;
  const addSecretKind = (value: unknown) =>
    isAboutSecret && isMap(value) && !isSecret(value) ? { ...value, kind: "Secret" } : value;
  const hide = (value: unknown) => hideSecretValues(addSecretKind(value));
  // Reports show only the changed lines of an object. Without a change, there are no lines into which a rule or policy
  // may have written the value of a Secret that was read.
  const secretsInChanges = checked.changes.length === 0 ? [] : readSecrets;
  const hideRead = <T>(value: T): T =>
    secretsInChanges.length === 0 ? value : (hideInValue(value, secretsInChanges) as T);
  // The diff hides an object's own values, if its kind is Secret.
  const hideObject = (value: unknown) => hideRead(addSecretKind(value));
  const hidePatch = (patch: readonly object[]) => hideRead(patch.map((operation) => hideOperation(operation, hide)));
  const hideStep = (step: HookTraceStep): HookTraceStep => {
    // Hooks that weren't called have nothing to hide but sentences.
    if (step.request === undefined && step.status === undefined) return step;
    const { request: _, status: __, patch, ...rest } = step;
    return {
      ...rest,
      ...(patch && { patch: hidePatch(patch.filter(isObject)) }),
      before: hideObject(step.before),
      after: hideObject(step.after),
    };
  };

  const changes = checked.changes.map(({ rule, patch }) => ({ rule, patch: hidePatch(patch) }));
  // A patch may add a copy and remove it again. Reports show the patches of `changes`, but not those of the steps.
  if (isWithoutSecrets) return { ...evaluation, checked: { ...checked, changes } };
  const sentences: string[] = [];
  mapSentences(evaluation, (sentence) => {
    sentences.push(sentence);
    return sentence;
  });
  const hidden = hideInSentences(sentences, objects.map(addSecretKind), readSecrets);
  const shown = mapSentences(evaluation, () => hidden.shift() ?? mask);
  return {
    ...shown,
    checked: { ...shown.checked, changes },
    steps: shown.steps.map(hideStep),
    before: hideObject(before),
    after: hideObject(after),
  };
};

/** Returns an evaluation in which `map` has replaced each sentence that the object's author may influence. */
const mapSentences = (evaluation: ObjectEvaluation, map: (sentence: string) => string): ObjectEvaluation => {
  const { checked, audit, steps } = evaluation;
  const mapMembers = <T extends object>(from: T, ...names: (keyof T & string)[]): T => {
    const texts = names.flatMap((name) => {
      const text = from[name];
      return typeof text === "string" ? [[name, map(text)]] : [];
    });
    return { ...from, ...Object.fromEntries(texts) };
  };
  return {
    ...evaluation,
    checked: {
      ...checked,
      denials: checked.denials.map((denial) => mapMembers(denial, "message", "reason", "suggestion")),
      warnings: checked.warnings.map((warning) => mapMembers(warning, "text")),
      undecided: checked.undecided.map(map),
    },
    audit: Object.fromEntries(Object.entries(audit).map(([key, text]) => [key, map(text)])),
    steps: steps.map((step) => mapMembers(step, "why", "failure")),
  };
};

/**
 * Hides the value of a patch's operation as in the whole object, where what is hidden depends on the path: puts the
 * value at its path in an empty object, calls `hide` for that object, and takes the value out again.
 */
const hideOperation = (operation: object, hide: (value: unknown) => unknown): object => {
  if (!("value" in operation)) return operation;
  const path = parsePointer(String(getOwn(operation, "path")));
  const nested = path.reduceRight<unknown>((inner, step) => ({ [step]: inner }), operation.value);
  return { ...operation, value: (lookUp(hide(nested), path) ?? { value: mask }).value };
};
