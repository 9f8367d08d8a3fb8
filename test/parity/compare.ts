import type { Toleration } from "#lib/kubernetes/core/v1.ts";
import { mergeTolerations } from "#lib/objects/toleration.ts";
import type { Since } from "#lib/since.ts";
import { findOldIndexesOfLines } from "../../infra/diff/alignment.ts";
import { selectNewest } from "./generators/served-versions.ts";
import type { RequestWithAnswer } from "./sequence-sender.ts";

/** Fields whose values differ between any two servers, with the reasons. Only the presence of a field is compared. */
const serverFields: Record<string, string> = {
  uid: "created for each object",
  resourceVersion: "counts the writes of a server",
  creationTimestamp: "a time",
  deletionTimestamp: "a time",
  startTime: "a time",
  lastTransitionTime: "a time",
  lastProbeTime: "a time",
  lastUpdateTime: "a time",
  lastPhaseTransitionTime: "a time",
  observedGeneration: "may be set by a controller of the server at any time",
  clusterIP: "drawn at random",
  clusterIPs: "drawn at random",
  nodePort: "drawn at random",
  healthCheckNodePort: "drawn at random",
  time: "the time of a field manager's last write",
  token: "signed by a server",
  expirationTimestamp: "a time",
};

/**
 * Values that are compared even in the fields of `serverFields`: if one server's answer has such a value, the other
 * server's answer must have it, too.
 */
const nonRandomValues = new Set(["None", ""]);

/** The part of an answer that must be equal on two servers. */
export interface ComparableServerAnswer {
  code: number;
  warnings: string[];
  body: unknown;
  /** The audit annotations that admission adds, by their names without the prefix of a plugin or a webhook. */
  audit?: Record<string, string>;
}

/**
 * Replaces or sorts what differs by chance in an answer: generated names, uids, times, and the order of some lists.
 */
export const toComparable = (
  { answer, name, audit = {} }: RequestWithAnswer,
  sequence: string,
): ComparableServerAnswer => {
  // The values of fields such as `uid` differ by chance, except "None" (a Service without an address) and "".
  const json = JSON.stringify([answer.body, selectAuditAnnotations(audit)], (key, value) =>
    Object.hasOwn(serverFields, key) && value !== undefined && !nonRandomValues.has(value) ? "?" : value,
  );
  const comparableJson = replaceNames(
    json.replace(/admission webhook \\"[^"]+\\" denied the request: /g, ""),
    name,
    sequence,
  )
    // Uids and times are replaced by `?` in the whole answer, because texts and labels contain them, too.
    .replaceAll(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, "?")
    // The name of the volume with a ServiceAccount's token has a random suffix, which is replaced by `?`.
    .replaceAll(/\bkube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b/g, "kube-api-access-?")
    // Up to Kubernetes 1.33, texts show Go's structures with the addresses of values in memory.
    .replaceAll(/(?<=\(\*[\w.]+\)\()0x[0-9a-f]+(?=\))/g, "0x?")
    // In half of all processes, Go's diffs have no-break spaces, so that programs don't rely on their exact text.
    .replaceAll("\u00a0", " ");
  const [parsedBody, comparableAudit] = JSON.parse(comparableJson);
  const body = Object.values(orderings).reduce((body, sortLists) => sortLists(body), parsedBody);
  const warnings = sortByPolicy(
    answer.warnings.map((text) => replaceNames(text, name, sequence)),
    (text) => /^Validation failed for ValidatingAdmissionPolicy '([^']*)'/.exec(text)?.[1],
  );
  return {
    code: answer.code,
    warnings,
    body,
    ...(Object.keys(comparableAudit).length > 0 && { audit: comparableAudit }),
  };
};

/**
 * Returns audit annotations by their names, without those that the API server adds about authorization and webhooks.
 * The values of several annotations with one name are joined.
 */
const selectAuditAnnotations = (audit: Record<string, string>) => {
  const selected = Object.entries(audit).filter(
    ([key]) => !/^authorization\.k8s\.io|^apiserver\.latency\.k8s\.io|webhook\.admission\.k8s\.io\//.test(key),
  );
  const byName = Map.groupBy(selected, ([key]) => key.slice(key.indexOf("/") + 1));
  return Object.fromEntries(
    [...byName].map(([name, entries]) => {
      const values = entries.map(([, value]) => value);
      return [name, name === "validation_failure" ? joinFailures(values) : values.sort().join("\n")];
    }),
  );
};

/** Joins the lists of failures that several policies wrote, and sorts them by policy, as their order is random. */
const joinFailures = (values: readonly string[]): string =>
  toCanonicalJson(
    sortByPolicy(
      values.flatMap((value) => JSON.parse(value)),
      ({ policy }) => policy,
    ),
  );

const sortByPolicy = <T>(values: readonly T[], getPolicy: (value: T) => string | undefined): T[] =>
  values.toSorted((one, other) => compareAsJson(getPolicy(one) ?? "", getPolicy(other) ?? ""));

type Body = Record<string, unknown>;

/** Sorts the lists in an answer whose order is random; each key says why. */
const orderings: Record<string, (body: Body) => Body> = {
  "a list is sorted by names, some of which the API server generated": (body) =>
    Array.isArray(body.items) ? { ...body, items: body.items.map(sortManagers).toSorted(compareAsJson) } : body,

  "field managers are sorted by the second in which they wrote": (body) => sortManagers(body),

  "API validation lists the errors of a map in Go's random order of maps": (body) => {
    const texts = [...new Set(listCauses(body)?.map(({ field, message }) => `${field}: ${message}`))];
    const listedTexts = `[${texts.join(", ")}]`;
    const message = String(body.message);
    if (texts.length < 2 || !message.endsWith(listedTexts)) return body;
    // The message repeats the causes at its end, so the sorted causes are enough.
    return { ...sortCauses(body), message: message.slice(0, -listedTexts.length) };
  },

  "LimitRanger lists the exceeded limits of a container or a pod in Go's random order of maps": (body) => {
    const [, start, list] =
      /^(.* is forbidden: )\[(.* per (?:Container|Pod|PersistentVolumeClaim) is .*)\]$/.exec(String(body.message)) ??
      [];
    if (start === undefined || list === undefined) return body;
    const faults = list.split(/, (?=minimum |maximum |\S+ max limit to request ratio )/);
    return { ...body, message: `${start}[${sortWithinKinds(faults, getFaultKind).join(", ")}]` };
  },

  "the conflicting field managers are listed in Go's random order of maps": (body) =>
    listCauses(body)?.every(({ reason }) => reason === "FieldManagerConflict") ? sortCauses(body) : body,

  "denials by MutatingAdmissionPolicies are listed in Go's random order of maps": (body) => {
    const texts = listCauses(body)?.map(({ message = "" }) => message) ?? [];
    const areDenials = texts.every((text) => /^policy '.* with binding '.* denied request: /s.test(text));
    if (texts.length < 2 || !areDenials || !texts.includes(String(body.message))) return body;
    return { ...sortCauses(body), message: texts.toSorted()[0] };
  },

  "the duplicates in a strategic merge patch are listed in Go's random order of maps": (body) => {
    const [start, ...errors] = String(body.message).split(": errors:\n");
    return errors.length > 0 ? { ...body, message: [start, ...errors.join("\n").split("\n").sort()].join("\n") } : body;
  },
};

/** Returns which limit of a LimitRange a message is about, such as `maximum per Pod`, without the resource. */
const getFaultKind = (fault: string) => /(minimum|maximum|ratio).* per \w+/.exec(fault)?.[0].replace(/ \S+ usage/, "");

/** Sorts each run of neighbouring texts of the same kind, because upstream returns them in random order. */
const sortWithinKinds = (texts: string[], getKind: (text: string) => unknown): string[] => {
  const runs: string[][] = [];
  for (const text of texts) {
    const last = runs.at(-1);
    if (last?.[0] !== undefined && getKind(last[0]) === getKind(text)) last.push(text);
    else runs.push([text]);
  }
  return runs.flatMap((run) => run.sort());
};

const isLimitMessage = (text: string) =>
  /^Too many requests: \[?limit reached on type SourceAndObject for key /.test(text);

interface Cause {
  reason?: string;
  field?: string;
  message?: string;
}

const listCauses = ({ details }: Body): Cause[] | undefined => {
  const { causes } = Object(details);
  return Array.isArray(causes) ? causes : undefined;
};

const sortCauses = (body: Body): Body => {
  const causes = listCauses(body)?.toSorted(compareAsJson);
  return { ...body, details: { ...Object(body.details), causes } };
};

const sortManagers = (object: Body): Body => {
  const { managedFields } = Object(object.metadata);
  if (!Array.isArray(managedFields)) return object;
  return { ...object, metadata: { ...Object(object.metadata), managedFields: managedFields.toSorted(compareAsJson) } };
};

/**
 * Replaces generated names of objects in an answer by `<requestedName>-?`, because their suffixes are random. A client
 * requests a name for an object, or lets the API server generate one that begins with it.
 */
const replaceNames = (text: string, objectName: string, requestedName: string) =>
  (objectName === requestedName ? text : text.replaceAll(objectName, `${requestedName}-?`)).replaceAll(
    new RegExp(`\\b${requestedName}-[bcdfghjklmnpqrstvwxz2456789]{5}\\b`, "g"),
    `${requestedName}-?`,
  );

/** An intended difference between the answers of a plugin and of the rule that reimplements it, with the reason. */
interface KnownDifference {
  reason: string;
  /** The rules that have this difference and list it in their READMEs. */
  rules: string[];
  /** In which minors of Kubernetes this difference exists; absent: in all of them. */
  since?: Since<boolean>;
  /** True if the audit annotations may differ, too; otherwise they must be equal. */
  isInAudit?: true;
  /**
   * Reports whether this difference alone explains how the plugin's answer (`wanted`) and the rule's (`actual`) differ.
   * `earlierActual` and `earlierWanted` are explained in `ComparisonContext`.
   */
  explains(
    wanted: ComparableServerAnswer,
    actual: ComparableServerAnswer,
    earlierActual: readonly ComparableServerAnswer[],
    earlierWanted: readonly ComparableServerAnswer[],
  ): boolean;
}

/** All intended differences. */
const knownDifferences: KnownDifference[] = [
  {
    reason: "a matchCondition that fails in the entry refuses the request with 403 and the error alone",
    rules: ["validating-admission-policy"],
    isInAudit: true,
    explains: (wanted, actual) => {
      const [start, error] = getMessage(actual).split(" is forbidden: ");
      const message = getMessage(wanted);
      const isFailure = error !== undefined && /^\[?expression '/.test(error) && actual.code === 403;
      return isFailure && message.startsWith(`${start} is forbidden: Validating`) && message.endsWith(`: ${error}`);
    },
  },
  {
    reason: "a matchCondition that fails in the entry refuses the request with 403 and the error alone",
    rules: ["mutating-admission-policy"],
    explains: (wanted, actual) => {
      const [, error] = getMessage(actual).split(" is forbidden: ");
      const isFailure = error !== undefined && /^\[?expression '/.test(error) && actual.code === 403;
      const message = getMessage(wanted);
      return isFailure && message.startsWith("policy '") && message.endsWith(` denied request: ${error}`);
    },
  },
  {
    reason: "a value of another type in a JSON patch is refused by the API server, after the policy's other mutations",
    rules: ["mutating-admission-policy"],
    explains: (wanted, actual) =>
      wanted.code === 500 &&
      getMessage(wanted).startsWith("Internal error occurred: json: cannot unmarshal ") &&
      actual.code === 403 &&
      getMessage(actual).startsWith("policy '"),
  },
  {
    reason:
      "before Kubernetes 1.37, the API server panics on an Object in a list or a map of a JSON patch; the requests after it don't count",
    rules: ["mutating-admission-policy"],
    since: { "1.0": true, "1.37": false },
    isInAudit: true,
    explains: (wanted, _actual, _earlierActual, earlierWanted) => [wanted, ...earlierWanted].some(isPanic),
  },
  {
    reason: "from Kubernetes 1.37 on, the API server sends no LocalSubjectAccessReview to a webhook",
    rules: ["namespace-auto-provision", "namespace-exists"],
    since: { "1.37": true },
    explains: (wanted, actual, earlierActual) =>
      (isAccessReview(actual) && wanted.code === 404) ||
      (earlierActual.some(isAccessReview) && Object(wanted.body).kind === "Namespace" && actual.code === 404),
  },
  {
    reason:
      "in Kubernetes 1.33, the plugin doesn't copy the labels topology.kubernetes.io/zone and topology.kubernetes.io/region",
    rules: ["pod-topology-labels"],
    since: { "1.0": true, "1.34": false },
    explains: (wanted, actual) => isSame(deleteTopologyLabels(wanted), deleteTopologyLabels(actual)),
  },
  {
    reason:
      "only the plugin writes an audit annotation for an exempt request, for the level privileged and for an invalid label",
    rules: ["pod-security"],
    isInAudit: true,
    explains: (wanted, actual) => isSame(deletePluginOnlyAudit(wanted, actual), actual),
  },
  {
    reason: "if a uid isn't the expected one, only the plugin's refusal shows the uid that was found",
    rules: ["node-restriction"],
    explains: (wanted, actual) =>
      isSameRefusal(wanted, actual, (text) =>
        text
          .replace(/(?<= UID mismatch: expected \S+ got )\S+$/, "another")
          .replace(
            /(?<=, inconsistent with the running node|which differs from the running service account) \("[^"]*"\)$/,
            "",
          )
          .replace(/(?<= which differs from running pod) "[^"]*"$/, ""),
      ),
  },
  {
    reason:
      "if a node changes a PersistentVolumeClaim, the rule's refusal names the changed fields, and the plugin's refusal prints them as Go structs",
    rules: ["node-restriction"],
    explains: (wanted, actual) => {
      const end = /(?<= other than status\.quantity and status\.conditions: ).*$/s;
      const [ours] = end.exec(getMessage(actual)) ?? [];
      return ours !== undefined && isSameRefusal(wanted, actual, (text) => text.replace(end, ours));
    },
  },
  {
    reason: "if a certificate request can't be parsed, the rule's refusal has another text than the plugin's",
    rules: ["node-restriction"],
    explains: (wanted, actual) =>
      isSameRefusal(wanted, actual, (text) =>
        text.replace(
          /(?<= unable to parse csr: )(asn1|x509): .*$/s,
          "the PEM block holds no PKCS #10 certificate request in DER",
        ),
      ),
  },
  {
    reason: "if the plugin answers 500 without a reason, the rule answers 403 Forbidden with the same text",
    rules: [
      "always-pull-images",
      "node-restriction",
      "pod-node-selector",
      "pod-toleration-restriction",
      "resource-quota",
      "service-account",
    ],
    explains: (wanted, actual) => {
      const [upstreamBody, ours] = [Object(wanted.body), Object(actual.body)];
      return (
        wanted.code === 500 &&
        upstreamBody.reason === undefined &&
        actual.code === 403 &&
        ours.reason === "Forbidden" &&
        isSame(wanted.warnings, actual.warnings) &&
        upstreamBody.message === ours.message
      );
    },
  },
  {
    reason: "if the rule has patched the object, messages of API validation show an empty list or map as null",
    rules: [
      "always-pull-images",
      "default-ingress-class",
      "default-storage-class",
      "default-toleration-seconds",
      "extended-resource-toleration",
      "limit-ranger",
      "pod-group-protection",
      "pod-node-selector",
      "pod-toleration-restriction",
      "pod-topology-labels",
      "priority",
      "runtime-class",
      "service-account",
      "storage-object-in-use-protection",
      "taint-nodes-by-condition",
    ],
    explains: (wanted, actual) => {
      const [theirs, ours] = [splitDiffs(wanted), splitDiffs(actual)];
      return (
        wanted.code === 422 &&
        isSame(theirs.rest, ours.rest) &&
        theirs.diffs.length === ours.diffs.length &&
        theirs.diffs.every((diff, index) => isSameResult(diff, ours.diffs[index] ?? ""))
      );
    },
  },
  {
    reason:
      "the tolerations of a RuntimeClass stand before those that the rule adds, and after those that the plugin adds",
    rules: ["default-toleration-seconds", "extended-resource-toleration"],
    explains: (wanted, actual) => isSame(sortTolerations(wanted), sortTolerations(actual)),
  },
  {
    reason:
      "the API server drops the plugin's toleration if a toleration of the pod's RuntimeClass covers it, and keeps the rule's toleration",
    rules: ["extended-resource-toleration"],
    explains: (wanted, actual) => isSame(sortTolerations(wanted), sortTolerations(actual, undefined, deleteCovered)),
  },
  {
    reason:
      "if a RuntimeClass states how long pods tolerate a lost node, the pod gets this time with the rule, and the default time with the plugin",
    rules: ["default-toleration-seconds"],
    explains: (wanted, actual) => isSame(sortTolerations(wanted, applyRuntimeClass), sortTolerations(actual)),
  },
  {
    reason:
      "if an annotation isn't a list of tolerations, the rule's refusal names the annotation, and the plugin answers 500 with Go's JSON error",
    rules: ["pod-toleration-restriction"],
    explains: (wanted, actual) =>
      wanted.code === 500 &&
      /^(invalid character|json: cannot unmarshal|unexpected end of JSON)/.test(getMessage(wanted)) &&
      actual.code === 403 &&
      /^namespace "\S+" must have a JSON list of tolerations in its annotation \S+$/.test(getMessage(actual)),
  },
  {
    reason:
      "the rule refuses an object in a missing namespace before the API server validates the object, and the plugin refuses it afterwards",
    rules: ["namespace-exists"],
    explains: (wanted, actual) => {
      const isEarly = actual.code === 404 && /^namespaces "[^"]+" not found$/.test(getMessage(actual));
      const isInvalid = wanted.code === 422 && Object(wanted.body).reason === "Invalid";
      return isEarly && actual.warnings.length === 0 && (isInvalid || isSame({ ...wanted, warnings: [] }, actual));
    },
  },
  {
    reason: "if the answer of the image service is invalid, the rule's refusal has another text than the plugin's",
    rules: ["image-policy-webhook"],
    explains: (wanted, actual) => {
      const [start, cause = ""] = getMessage(wanted).split(" is forbidden: ");
      return (
        wanted.code === 403 &&
        actual.code === 403 &&
        /^(couldn't get version\/kind; json parse error|the server could not find the requested resource)/.test(
          cause,
        ) &&
        getMessage(actual).startsWith(`${start} is forbidden: the image policy webhook backend answers `)
      );
    },
  },
  {
    reason:
      "the buckets of the rule get tokens at other moments than those of the plugin, so one may refuse an event that the other admits",
    rules: ["event-rate-limit"],
    explains: (wanted, actual) =>
      [wanted, actual].every((one) => one.code < 300 || (one.code === 429 && isLimitMessage(getMessage(one)))) &&
      [wanted, actual].some(({ code }) => code === 429),
  },
  {
    reason: "the field manager of a quota's status is postern with the rule, and kube-apiserver with the plugin",
    rules: ["resource-quota"],
    explains: (wanted, actual) =>
      Object(wanted.body).kind === "ResourceQuotaList" &&
      isSame(
        JSON.parse(JSON.stringify(wanted).replaceAll('"manager":"kube-apiserver"', '"manager":"postern"')),
        actual,
      ),
  },
  {
    reason: "of several quotas that refuse a request, chance decides upstream which one the refusal names",
    rules: ["resource-quota"],
    explains: (wanted, actual) => {
      const [one, other] = [wanted, actual].map((answer) => quotaRefusal.exec(getMessage(answer)) ?? []);
      return (
        isSameRefusal(wanted, actual, () => getMessage(actual)) &&
        one?.[1] !== undefined &&
        one[1] === other?.[1] &&
        one[2] !== other[2]
      );
    },
  },
  {
    reason: "the field manager of the created namespace is postern with the rule, and kube-apiserver with the plugin",
    rules: ["namespace-auto-provision"],
    explains: (wanted, actual) =>
      JSON.stringify(wanted.body).includes('"kind":"Namespace"') &&
      JSON.stringify(wanted).split('"manager":"kube-apiserver"').length === 2 &&
      isSame(JSON.parse(JSON.stringify(wanted).replace('"manager":"kube-apiserver"', '"manager":"postern"')), actual),
  },
];

/** Matches a refusal by a quota. The groups are the text up to the cause, and the quota's name. */
const quotaRefusal = /^(.* is forbidden: )(?:exceeded quota|failed quota|status unknown for quota): ([^:,]+)[:,]/;

/**
 * Deletes audit annotations that the plugin PodSecurity wrote but its copy, the rule `pod-security` (`actual`), didn't.
 * The API server doesn't call the rule for exempt requests and privileged namespaces. And the rule may not see invalid
 * labels of a namespace: if the name of the called webhook contains the namespace's levels, it reads no labels.
 */
const deletePluginOnlyAudit = ({ audit = {}, ...answer }: ComparableServerAnswer, actual: ComparableServerAnswer) => {
  const isOnlyOfPlugin = ([key, value]: [string, string]) =>
    key === "exempt" ||
    (key === "enforce-policy" && value.startsWith("privileged:")) ||
    (key === "error" && value.startsWith("Failed to parse policy: "));
  const kept = Object.entries(audit).filter(
    (annotation) => actual.audit?.[annotation[0]] !== undefined || !isOnlyOfPlugin(annotation),
  );
  return kept.length > 0 ? { ...answer, audit: Object.fromEntries(kept) } : answer;
};

/** Reports whether the API server panicked: then it closes the connection, or answers with a text about the panic. */
const isPanic = ({ code, body }: ComparableServerAnswer) =>
  code === 0 || String(Object(body).text).startsWith("This request caused apiserver to panic.");

/** Reports whether an answer is a LocalSubjectAccessReview, which the API server answers but doesn't store. */
const isAccessReview = ({ code, body }: ComparableServerAnswer) =>
  code === 201 && Object(body).kind === "LocalSubjectAccessReview";

/** Deletes the labels that the rule copies from nodes, and maps that are empty without them. */
const deleteTopologyLabels = (answer: ComparableServerAnswer): unknown =>
  JSON.parse(JSON.stringify(answer), (key, value) => {
    if (/^(f:)?topology\.kubernetes\.io\/(zone|region)$/.test(key)) return undefined;
    // In managedFields, `f:` stands before the name of a field, and the key "." stands for the map itself.
    const isEmptied =
      /^(f:)?(labels|metadata)$/.test(key) && Object.keys(Object(value)).every((inner) => inner === ".");
    return isEmptied ? undefined : value;
  });

/**
 * Reports whether both answers refuse the request with equal details and warnings, and `rewrite` turns the message of
 * the plugin into the message of the rule.
 */
const isSameRefusal = (
  wanted: ComparableServerAnswer,
  actual: ComparableServerAnswer,
  rewrite: (text: string) => string | undefined,
): boolean => {
  const [{ details, reason }, ours] = [Object(wanted.body), Object(actual.body)];
  const isForbiddenAlike = wanted.code === 403 && isSame([details, reason], [ours.details, ours.reason]);
  // A plain 500 of kube-apiserver has neither details nor a reason that could be compared.
  const isPlain500 = wanted.code === 500 && reason === undefined;
  const isRefused = actual.code === 403 && ours.reason === "Forbidden" && isSame(wanted.warnings, actual.warnings);
  return (isForbiddenAlike || isPlain500) && isRefused && rewrite(getMessage(wanted)) === getMessage(actual);
};

const getMessage = ({ body }: ComparableServerAnswer) => String(Object(body).message);

/**
 * Returns the unified diffs at the ends of an answer's texts, and the answer without them. In these texts, empty
 * lists and maps are replaced by null (nil in Go's structures), because one answer may have null where the other has
 * an empty value.
 */
const splitDiffs = (answer: ComparableServerAnswer) => {
  const diffs: string[] = [];
  const rest: unknown = JSON.parse(JSON.stringify(answer), (_, value) => {
    if (typeof value !== "string") return value;
    const [text = "", diff] = value.split(/\n(?=@@ -[\s\S]*$)/);
    if (diff !== undefined) diffs.push(value.slice(text.length + 1));
    return text
      .replace(/(?<= value: )(\[\]|\{\})/g, "null")
      .replace(/(?<= value: [\w.*[\]]+)\{\}/g, "(nil)")
      .replace(goStructDiff, "\n(a diff)");
  });
  return { diffs, rest };
};
/**
 * Matches a diff of two Go structures in a message of Kubernetes 1.33. The new structure can't be made from such a diff
 * and compared, because the diff leaves out the unchanged fields.
 */
const goStructDiff = /\n {2}[\w.]+\{\n[\s\S]*?\n {2}\}(?=\n|$)/g;

/**
 * Reports whether two diffs of the same old object lead to the same new object. Old lines that only one diff shows are
 * used for both. `wanted` may have empty lists or maps where `actual` has null.
 */
const isSameResult = (wanted: string, actual: string): boolean => {
  const oldLinesByNumber = new Map([...listOldLines(wanted), ...listOldLines(actual)]);
  const lastNumber = Math.max(0, ...oldLinesByNumber.keys());
  const [one, other] = [wanted, actual].map((diff) => buildNewLines(diff, oldLinesByNumber, lastNumber));
  if (!one || !other || one.length !== other.length) return false;
  return one.every((line, index) => [line, line.replace(/(\[\]|\{\})(?=,?$)/, "null")].includes(other[index] ?? ""));
};

/** Returns each hunk of a unified diff: its lines, and the number of the old object's line at which it starts. */
const parseHunks = (diff: string) =>
  diff
    .split(/^@@ /m)
    .slice(1)
    .map((hunk) => {
      const [head = "", ...lines] = hunk.replace(/\n$/, "").split("\n");
      const [, start = "1", length = "1"] = /^-(\d+)(?:,(\d+))?/.exec(head) ?? [];
      // If a hunk has no old lines, its head states the number of the line before it.
      return { start: Number(start) + (length === "0" ? 1 : 0), lines };
    });

/** Returns the lines of the old object that a diff shows, with their numbers. */
const listOldLines = (diff: string): [number, string][] =>
  parseHunks(diff).flatMap(({ start, lines }) =>
    lines
      .filter((line) => !line.startsWith("+"))
      .map((line, index): [number, string] => [start + index, line.slice(1)]),
  );

/**
 * Returns the new object's lines from a diff. An unchanged line that the diff doesn't show is taken from
 * `oldLinesByNumber` or represented by its number. `length` is the number of lines of the old object that are compared.
 */
const buildNewLines = (diff: string, oldLinesByNumber: Map<number, string>, length: number): string[] => {
  const lines: string[] = [];
  let next = 1;
  const keepUntil = (end: number) => {
    for (; next < end; next++) lines.push(oldLinesByNumber.get(next) ?? String(next));
  };
  for (const hunk of parseHunks(diff)) {
    keepUntil(hunk.start);
    lines.push(...hunk.lines.filter((line) => !line.startsWith("-")).map((line) => line.slice(1)));
    next += hunk.lines.filter((line) => !line.startsWith("+")).length;
  }
  keepUntil(length + 1);
  return lines;
};

/** In pods with a RuntimeClass: drops some tolerations by `drop`, then changes each by `replace`, then sorts them. */
const sortTolerations = (
  answer: ComparableServerAnswer,
  replace = (toleration: unknown, _runtimeClass: string) => toleration,
  drop = (tolerations: Toleration[]) => tolerations,
): unknown =>
  JSON.parse(JSON.stringify(answer), (key, value) => {
    if (key !== "spec" || typeof value.runtimeClassName !== "string" || !Array.isArray(value.tolerations)) return value;
    const tolerations = drop(value.tolerations)
      .map((one: unknown) => replace(one, value.runtimeClassName))
      .toSorted(compareAsJson);
    return { ...value, tolerations };
  });

const deleteCovered = (tolerations: Toleration[]) => mergeTolerations(tolerations, []);

/**
 * Makes the plugin's answer comparable with the rule's: replaces its 300 s by the 30 s of the RuntimeClass `impatient`.
 * The plugin adds 300 s before the RuntimeClass is applied, and they stay. The rule runs later, finds 30 s, adds none.
 */
const applyRuntimeClass = (toleration: unknown, runtimeClass: string) => {
  const key = "node.kubernetes.io/not-ready";
  const added = { key, operator: "Exists", effect: "NoExecute", tolerationSeconds: 300 };
  return runtimeClass === "impatient" && isSame(toleration, added) ? { ...added, tolerationSeconds: 30 } : toleration;
};

const isSame = (one: unknown, other: unknown) => toCanonicalJson(one) === toCanonicalJson(other);

/** Returns JSON with sorted keys, so that equal values have equal texts. */
const toCanonicalJson = (value: unknown): string =>
  JSON.stringify(value, (_, inner) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  );

const compareAsJson = (one: unknown, other: unknown) => {
  const [left, right] = [toCanonicalJson(one), toCanonicalJson(other)];
  return left < right ? -1 : Number(left > right);
};

export type ParityComparisonResult =
  | { verdict: "equal" }
  | { verdict: "known"; reason: string }
  | { verdict: "different" };

/** The name of the compared rule, and the minor of Kubernetes. */
export interface ComparedRule {
  rule: string;
  minor: string;
}

/** What a comparison of two answers takes into account besides these answers. */
interface ComparisonContext {
  /** The answers of the rule's server to the earlier requests of the sequence. */
  earlierActual?: readonly ComparableServerAnswer[];
  /** The answers of the plugin's server to the earlier requests of the sequence. */
  earlierWanted?: readonly ComparableServerAnswer[];
  /**
   * If several webhook entries of the rule deny the request, the client gets one of these denials. These are all
   * answers that it may get.
   */
  denials?: readonly ComparableServerAnswer[];
}

/** Compares the answer of the plugin's server, `wanted`, with that of the rule's server, `actual`. */
export const comparePluginAndPortAnswers = (
  { rule, minor }: ComparedRule,
  wanted: ComparableServerAnswer,
  actual: ComparableServerAnswer,
  { earlierActual = [], earlierWanted = [], denials = [] }: ComparisonContext = {},
): ParityComparisonResult => {
  // Upstream's audit annotation may have only one of several failures; then the rule's other failures are added to it.
  const completeUpstream = (ofRule: ComparableServerAnswer) => addFailuresOfRule(wanted, ofRule, minor);
  // If several policies deny a request, upstream returns one denial at random, and so does the rule: one of `denials`.
  // If upstream's denial, with the rule's other failures added, is one of `denials`, the rule may return any of these.
  const isDenialOfRule = denials.some((denial) => isSame(completeUpstream(denial), denial));
  const acceptedAnswers = [completeUpstream(actual), ...(isDenialOfRule ? denials : [])];
  if (acceptedAnswers.some((answer) => isSame(answer, actual))) return { verdict: "equal" };
  const known = knownDifferences.find(
    ({ rules, since = { "1.0": true }, isInAudit, explains }) =>
      rules.includes(rule) &&
      selectNewest(since, minor) &&
      acceptedAnswers.some(
        (answer) =>
          (isInAudit || isSame(answer.audit, actual.audit)) && explains(answer, actual, earlierActual, earlierWanted),
      ),
  );
  return known ? { verdict: "known", reason: known.reason } : { verdict: "different" };
};

/**
 * Up to Kubernetes 1.36, upstream's audit annotation has the failure of only one policy, which is chosen at random, and
 * the rule's annotation has the failures of all policies. If upstream's failure is one of the rule's failures, returns
 * upstream's answer with all failures of the rule; otherwise returns upstream's answer unchanged.
 */
const addFailuresOfRule = (
  wanted: ComparableServerAnswer,
  actual: ComparableServerAnswer,
  minor: string,
): ComparableServerAnswer => {
  const listFailures = ({ audit }: ComparableServerAnswer): unknown[] => JSON.parse(audit?.validation_failure ?? "[]");
  const [first, ...more] = listFailures(wanted);
  const ruleFailures = listFailures(actual);
  const isFailureOfRule = more.length === 0 && ruleFailures.some((failure) => isSame(failure, first));
  if (!isFailureOfRule || !selectNewest({ "1.0": true, "1.37": false }, minor)) return wanted;
  return { ...wanted, audit: { ...wanted.audit, validation_failure: toCanonicalJson(ruleFailures) } };
};

/**
 * Formats two answers as a diff: lines with `-` are only in the first, lines with `+` only in the second. Equal lines
 * are shown only near a difference.
 */
export const formatAnswerDiff = (wanted: ComparableServerAnswer, actual: ComparableServerAnswer): string => {
  return formatLines(toLines(wanted), toLines(actual));
};

/** Returns an API server's answer as lines of JSON. Texts with line breaks become several lines. */
const toLines = (value: ComparableServerAnswer) =>
  JSON.stringify(JSON.parse(toCanonicalJson(value)), null, 2)
    .replaceAll("\\n", "\n    | ")
    .split("\n");

/** Formats a diff of two lists of lines. */
const formatLines = (oldLines: string[], newLines: string[]): string => {
  const lines: string[] = [];
  let next = 0;
  const deleteUntil = (end: number) => {
    for (; next < end; next++) lines.push(`- ${oldLines[next]}`);
  };
  // For each new line, the index of the equal old line, or -1 for an added line.
  const oldIndexes = findOldIndexesOfLines(oldLines, newLines);
  for (const [index, oldIndex] of oldIndexes.entries()) {
    if (oldIndex >= 0) deleteUntil(oldIndex);
    // Before the first added line of a run, the deleted lines are shown.
    else if (index === 0 || (oldIndexes[index - 1] ?? -1) >= 0)
      deleteUntil(oldIndexes.slice(index).find((kept) => kept >= 0) ?? oldLines.length);
    lines.push(`${oldIndex < 0 ? "+" : " "} ${newLines[index]}`);
    if (oldIndex >= 0) next = oldIndex + 1;
  }
  deleteUntil(oldLines.length);
  const isNear = (index: number) =>
    lines.slice(Math.max(0, index - 2), index + 3).some((line) => !line.startsWith("  "));
  return lines.filter((_, index) => isNear(index)).join("\n");
};
