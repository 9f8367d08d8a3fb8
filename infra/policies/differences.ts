import type { Affinity } from "kubernetes-types/core/v1.d.ts";
import { asksExistence, settled } from "#lib/policy/checks/constants.ts";
import { type Place, referencesIn, scriptsIn } from "#lib/policy/checks/places.ts";
import {
  type Condition,
  type Constant,
  type OverrideRule,
  type OverrideTemplate,
  type Policy,
  policyGroup,
  type Reference,
  type ValidateRule,
} from "#lib/policy/kinds.ts";
import { numberOf } from "#lib/policy/values/decimals.ts";

/** A way in which upstream differs, and where it shows. */
type Difference<T> = [isTouched: (given: T) => boolean, sentence: string];

/** Where a policy without faults does something else under kinitiras, each in a sentence. */
export const differencesOf = (policy: Policy): string[] => [
  ...sentences(ofPolicy, "", policy),
  ...(policy.kind === "ClusterValidatePolicy"
    ? policy.spec.validateRules.flatMap((rule, index) => {
        const at = `spec.validateRules[${index}]`;
        return [
          ...sentences(ofRule, at, rule),
          ...(rule.template ? sentences(ofCondition, `${at}.template.condition`, rule.template.condition) : []),
        ];
      })
    : policy.spec.overrideRules.flatMap((rule, index) => {
        const at = `spec.overrideRules[${index}]`;
        const { overriders, ...rest } = rule;
        const kinds = policy.spec.resourceSelectors?.map(({ kind }) => kind) ?? ["*"];
        return [
          ...sentences(ofRule, at, { ...rest, ...overriders }),
          ...sentences(ofOverriding, at, rule),
          ...sentences(ofPlace, at, { overriders, kinds: kinds.length > 0 ? kinds : ["*"] }),
          ...(overriders.template ? sentences(ofTemplate, `${at}.overriders.template`, overriders.template) : []),
        ];
      })),
  ...referencesIn(policy).flatMap(({ at, what, isUsed }) => (isUsed ? sentences(ofReference, at, { at, what }) : [])),
  ...scriptsIn(policy).flatMap(({ at, what }) => (at.endsWith(".cue") ? sentences(ofScript, at, what) : [])),
];

const sentences = <T>(differences: Difference<T>[], at: string, given: T): string[] =>
  differences.filter(([isTouched]) => isTouched(given)).map(([, sentence]) => `${at && `${at}: `}${sentence}`);

const ofPolicy: Difference<Policy>[] = [
  [
    ({ kind, spec: { resourceSelectors: selectors = [] } }) =>
      kind === "OverridePolicy" && (selectors.length === 0 || selectors.some(({ namespace }) => !namespace)),
    "it concerns its own namespace alone; upstream applies it in every one",
  ],
  [
    ({ kind }) => kind === "ClusterValidatePolicy",
    "validate policies run by name, and the first denial wins; upstream's order is by chance",
  ],
  [
    ({ spec: { resourceSelectors: selectors = [] } }) =>
      selectors.length === 0 || selectors.some(({ apiVersion }) => apiVersion.startsWith(`${policyGroup}/`)),
    "policies are never subject to policies; upstream's can lock out their own repair",
  ],
  [
    ({ spec: { resourceSelectors: selectors = [] } }) => selectors.some(({ namespace }) => namespace),
    "an object that is being created in a namespace and doesn't name it yet is taken to be there, and isn't given it; upstream writes the namespace into it",
  ],
  [
    ({ spec: { resourceSelectors: selectors = [] } }) =>
      selectors.some(({ fieldSelector }) =>
        fieldSelector?.matchExpressions?.some((one) => Object.hasOwn(one, "values")),
      ),
    "values of a field expression are taken for value; upstream drops them, and In then takes nothing",
  ],
];

type AnyRule = Pick<ValidateRule, "targetOperations" | "template" | "renderedCue"> | OverrideRule["overriders"];

const operationsOf = (rule: { targetOperations?: string[] }) => rule.targetOperations ?? [];

const ofRule: Difference<AnyRule & { targetOperations?: string[] }>[] = [
  [
    (rule) => operationsOf(rule).includes("*"),
    "* among targetOperations is every operation; upstream never takes it for one",
  ],
  [
    (rule) => operationsOf(rule).includes("CONNECT"),
    "CONNECT is let through; upstream refuses every CONNECT that it is asked about",
  ],
  [
    ({ renderedCue, template }) => Boolean(renderedCue) && !template,
    "renderedCue without a template is removed at admission; upstream keeps it, and never runs it",
  ],
];

const ofOverriding: Difference<OverrideRule>[] = [
  [
    (rule) => operationsOf(rule).length === 0 || operationsOf(rule).includes("DELETE"),
    "nothing is overridden on DELETE; upstream runs the rule there, to no effect but that an error denies the deletion",
  ],
  [
    ({ overriders: { origin, plaintext = [] } }) => origin !== undefined && plaintext.length > 0,
    "plaintext runs before origin; upstream ignores it beside origin",
  ],
  [
    ({ overriders: { plaintext = [] } }) =>
      plaintext.some(({ op, path }) => op !== "remove" && /^\/metadata\/(annotations|labels)\/[^/]+$/.test(path)),
    "an object without annotations or labels is given some first; upstream fails the request",
  ],
  [
    ({ overriders: { origin = [] } }) =>
      origin.some(
        ({ type, operation }) =>
          operation === "remove" && ["annotations", "labels", "nodeSelector", "tolerations"].includes(type),
      ),
    "to remove what isn't there changes nothing; upstream writes null",
  ],
];

const inPods = (types: (string | undefined)[]) =>
  types.some((type) => type && !["annotations", "labels"].includes(type));

const ofPlace: Difference<{ overriders: OverrideRule["overriders"]; kinds: string[] }>[] = [
  [
    ({ overriders: { template }, kinds }) => {
      const own = [
        "Pod",
        ...(/^resources/.test(template?.type ?? "")
          ? ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"]
          : []),
      ];
      return inPods([template?.type]) && kinds.some((kind) => !own.includes(kind));
    },
    "the pods of workloads are changed in their template, those of a CronJob, too, and other kinds are left alone; upstream writes into spec itself, or fails",
  ],
  [
    ({ overriders: { origin = [] }, kinds }) =>
      inPods(origin.map(({ type }) => type)) && kinds.some((kind) => !["Pod", "Deployment"].includes(kind)),
    "every workload with a pod template is changed, and other kinds are left alone; upstream fails for all but Pod and Deployment",
  ],
];

const isMetadata = ({ type }: OverrideTemplate) => type === "annotations" || type === "labels";
const amountsOf = ({ type, resources = {} }: OverrideTemplate) =>
  type === "resources"
    ? [resources.limits, resources.requests].flatMap((amounts) => Object.entries(amounts ?? {}))
    : [];

const ofTemplate: Difference<OverrideTemplate>[] = [
  [
    (template) =>
      (isMetadata(template) &&
        (settled(template.value) === "stringMap"
          ? Object.keys(template.value?.stringMap ?? {}).some((key) => key.includes("/"))
          : /\/|~1/.test(template.path ?? ""))) ||
      amountsOf(template).some(([name]) => (template.operation === "remove" ? /\/|~1/ : /\//).test(name)),
    "a key with a slash is that key; upstream makes a dot of the slash, or fails, or doesn't find the key to remove",
  ],
  [
    ({ value }) => isCode(value),
    "quotes, backslashes and line breaks in a value are data; upstream pastes them into a script",
  ],
  [
    (template) =>
      isMetadata(template) &&
      template.operation !== "remove" &&
      template.valueRef !== undefined &&
      !settled(template.value),
    "a number or a boolean that is referred to is written as text; upstream writes it as it is, which the API server then refuses",
  ],
  [
    (template) =>
      template.operation !== "remove" && amountsOf(template).some(([, amount]) => !/^\d+$/.test(String(amount))),
    "a quantity is written as the policy has it; upstream rounds it up to whole units",
  ],
  [
    ({ type, operation, resourcesOversell = {} }) =>
      type === "resourcesOversell" &&
      operation === "remove" &&
      Object.values(resourcesOversell).every((factor) => !(Number(factor) > 0 && Number(factor) < 1)),
    "requests are removed whatever the factors are; upstream does nothing if none is between 0 and 1",
  ],
  [
    ({ type, operation }) => type === "resourcesOversell" && operation !== "remove",
    "every form of a quantity is reckoned with exactly, bytes are written as text, and a container without that limit is left alone; upstream fails or writes 0 there",
  ],
  [
    ({ type, operation }) => type === "tolerations" && operation === "replace",
    "a toleration that matches none is added; upstream then does nothing, or fails where a toleration has no key or value",
  ],
  [
    ({ type, operation }) => type === "tolerations" && operation === "remove",
    "all that match go, those without key or value simply don't, and a pod without any stays as it is; upstream fails there, or takes others away",
  ],
  [
    ({ type, operation, tolerations = [] }) => type === "tolerations" && operation === "add" && tolerations.length > 1,
    "several tolerations can be added at once; upstream refuses such a policy",
  ],
  [
    ({ type, operation }) => ["tolerations", "affinity"].includes(type) && operation === "add",
    "what is there already isn't added again; upstream adds it at every update",
  ],
  [
    ({ type, operation, affinity = {} }) => type === "affinity" && isUnrenderable(operation, affinity),
    "all six lists, and several terms of each, can be combined; upstream can't render these together, or fails when the rule runs",
  ],
];

const isCode = (value: unknown) => /[\\]/.test(JSON.stringify(value ?? null));

const isUnrenderable = (operation: string, { nodeAffinity, podAffinity, podAntiAffinity }: Affinity) => {
  const parts = [nodeAffinity, podAffinity, podAntiAffinity];
  const both = parts.some(
    (part) =>
      part?.requiredDuringSchedulingIgnoredDuringExecution && part.preferredDuringSchedulingIgnoredDuringExecution,
  );
  if (operation !== "add") return both;
  return (
    (nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms.length ?? 0) > 1 ||
    (nodeAffinity?.preferredDuringSchedulingIgnoredDuringExecution?.length ?? 0) > 1 ||
    (podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.length ?? 0) > 1 ||
    (podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution?.length ?? 0) > 1 ||
    (podAffinity?.preferredDuringSchedulingIgnoredDuringExecution?.length ?? 0) > 0
  );
};

const ofCondition: Difference<Condition>[] = [
  [
    ({ message, value }) => isCode([message, value]),
    "quotes, backslashes and line breaks in message and value are data; upstream pastes them into a script",
  ],
  [({ dataRef }) => dataRef?.from === "owner", "dataRef may be the owner's; upstream refuses such a policy"],
  [
    (condition) =>
      !asksExistence(condition) &&
      !condition.valueRef &&
      /Slice$|Map$/.test(settled(condition.value) ?? "") &&
      !/In$/.test(condition.cond),
    "lists and maps are compared member by member; upstream refuses such a policy",
  ],
  [
    ({ cond, value, valueRef }) => /In$/.test(cond) && (valueRef !== undefined || settled(value) === "floatSlice"),
    "valueRef may lead to a list, and a floatSlice holds numbers; upstream can't render the one, and compares the other as text",
  ],
  [
    ({ cond, valueRef }) => isEquality(cond) && valueRef !== undefined,
    "maps, and lists that have some, are compared member by member; upstream fails, or finds them different",
  ],
  [
    ({ cond, value, valueRef }) =>
      isEquality(cond) && (valueRef !== undefined || !/Slice$|Map$/.test(settled(value) ?? "")),
    "a number equals a text that reads as it, and other values of two types are different; upstream fails for most of them",
  ],
  [
    ({ cond, value, valueRef }) => /^[GL]te?$/.test(cond) && (valueRef !== undefined || isNumeric(value)),
    "texts that read as numbers or quantities are ordered by size, beside numbers, too; upstream goes by characters, and fails beside numbers",
  ],
  [
    ({ cond, value, valueRef }) =>
      /In$/.test(cond) && valueRef === undefined && settled(value) !== "floatSlice" && isNumeric(value),
    "a number is found in a list that has it as text, and a text in one that has it as number; upstream finds neither",
  ],
  [
    ({ cond, value, valueRef, valueProcess }) =>
      valueProcess !== undefined &&
      (isEquality(cond) || /^[GL]te?$/.test(cond)) &&
      (valueRef !== undefined || settled(value) === "string"),
    "a text that reads as a number or quantity can be reckoned with; upstream fails",
  ],
  [
    ({ affectMode, message }) => affectMode === "allow" && Boolean(message),
    "what isn't allowed is refused with the message; upstream gives none",
  ],
];

const isEquality = (cond: string) => /^(Not)?Equal$/.test(cond);

/** Whether a constant is a number, or reads as one, or is a list that has one. */
const isNumeric = (value: Constant = {}) => {
  const field = settled(value);
  return [field && value[field]].flat().some((one) => numberOf(one) !== undefined);
};

/** The texts of a reference in which placeholders are filled, and that have some. */
const filled = ({ k8s, http }: Reference): string[] =>
  JSON.stringify([k8s, http?.url, http?.params])
    .split('"')
    .filter((text) => text.includes("{{"));

const ofReference: Difference<Place<Reference>>[] = [
  [
    ({ what: { path } }) => path.includes("/") && /~[01]/.test(path),
    "~1 and ~0 in a path stand for / and ~; upstream leaves them as they are",
  ],
  [
    ({ what: { path } }) => /"[^"]*\/[^"]*"/.test(path),
    "a quoted key may hold a slash; upstream takes it for a step of the path",
  ],
  [
    ({ what: { from } }) => from === "owner",
    "for an object without an owner nothing is there; upstream fails the request",
  ],
  [
    ({ what }) => filled(what).some((text) => text.lastIndexOf("{{") > text.indexOf("}}") && text.includes("}}")),
    "all placeholders of a text are filled; upstream takes them for one, which then isn't found",
  ],
  [
    ({ what }) => filled(what).length > 0,
    "a number or a boolean fills a placeholder as text; upstream fails the request",
  ],
  [
    ({ what: { from } }) => from === "http",
    "an answer that isn't 2xx is an error, and redirects are not followed; upstream takes any answer, and follows",
  ],
  [
    ({ what: { from, path } }) => from === "http" && !/^\/*(body|header|trailer)\b/.test(path),
    "a path that begins with none of body, header and trailer leads into the body; upstream finds nothing there",
  ],
  [
    ({ what: { from, http } }) => from === "http" && Boolean(http?.auth?.authUrl) && !http?.auth?.staticToken,
    "a token is fetched when it is needed, and kept in memory; upstream writes it into the policy, and fails until it is there",
  ],
  [
    ({ what: { from, http } }) => from === "http" && http?.method?.toUpperCase() === "POST",
    "a POST is not sent on a dry run; upstream sends it",
  ],
];

const ofScript: Difference<string>[] = [
  [
    (script) => script.includes("processing"),
    "an answer that isn't 2xx is an error, and a POST is not sent on a dry run; upstream looks at neither",
  ],
  [(script) => /"tool\//.test(script), "tool packages are refused; upstream compiles them, to no effect"],
];
