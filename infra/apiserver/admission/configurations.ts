import { isMap, type JsonMap } from "#lib/json.ts";
import { isLabelSelector } from "#lib/policy/selectors.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { mergeSince, type Since } from "#lib/since.ts";
import { excludedReviews } from "./exempt.ts";

type Fault = string | undefined;

/** What minors of Kubernetes check differently in webhook configurations. */
interface ConfigurationChecks {
  /** The error texts for a Service without a name, and for one without a namespace. */
  missingServiceNameText: string;
  missingServiceNamespaceText: string;
  /**
   * Names that end in `reservedSuffix` are for configurations that the API server reads from files. If a client creates
   * a configuration with such a name, some minors warn, and newer ones refuse it.
   */
  warnsOfReservedName: boolean;
  refusesReservedName: boolean;
  /** Resources by group for which the API server calls no webhook. It warns of a rule that names one. */
  excludedResources: Readonly<Record<string, readonly string[]>>;
}

/** The error texts and checks of webhook configurations that differ between minors of Kubernetes. */
const checksByFirstVersion: Since<Partial<ConfigurationChecks>> = {
  "1.0": {
    missingServiceNameText: "Required value: service name is required",
    missingServiceNamespaceText: "Required value: service namespace is required",
  },
  "1.34": { missingServiceNameText: "Required value", missingServiceNamespaceText: "Required value" },
  "1.36": { warnsOfReservedName: true },
  "1.37": { refusesReservedName: true, excludedResources: excludedReviews },
};

const reservedSuffix = ".static.k8s.io";
const reservedNameFault = `names ending with "${reservedSuffix}" are reserved for static manifest-based configurations and cannot be managed via the API`;

interface WebhookConfiguration {
  metadata: { name: string };
  webhooks?: readonly { rules?: readonly RequestMatch[] }[] | null;
}

/** Returns the API server's warnings for a valid webhook configuration, by default in the newest Kubernetes version. */
export const listWebhookConfigWarnings = (
  { metadata, webhooks }: WebhookConfiguration,
  kubernetes?: string,
): string[] => {
  const { warnsOfReservedName, excludedResources = {} } = mergeSince(checksByFirstVersion, kubernetes);
  const isWarned = warnsOfReservedName && metadata.name.endsWith(reservedSuffix);
  const rules = (webhooks ?? []).flatMap((entry, index) =>
    (entry.rules ?? []).flatMap((rule, position) =>
      listNamedResources(rule, excludedResources).map(
        (name) =>
          `webhooks[${index}].rules[${position}]: ${name} is excluded from admission webhooks; this rule will have no effect`,
      ),
    ),
  );
  return [...(isWarned ? [`metadata.name: ${reservedNameFault}`] : []), ...rules];
};

/** Returns the resources among `excluded` that a rule names, each once; none if it has a wildcard. */
const listNamedResources = (
  { apiGroups, resources }: RequestMatch,
  excluded: ConfigurationChecks["excludedResources"],
): string[] => {
  if (apiGroups.includes("*") || resources.includes("*")) return [];
  const named = apiGroups.flatMap((group) =>
    resources.filter((resource) => excluded[group]?.includes(resource)).map((resource) => `${resource}.${group}`),
  );
  return [...new Set(named)];
};

/** Returns all faults for which the API server would refuse a webhook configuration; an empty list if it accepts it. */
export const listWebhookConfigFaults = (manifest: unknown, kubernetes?: string): string[] => {
  if (!isMap(manifest)) return ["must be an object"];
  const { apiVersion, kind, metadata, webhooks } = manifest;
  if (apiVersion !== "admissionregistration.k8s.io/v1") return ["apiVersion must be admissionregistration.k8s.io/v1"];
  const { name } = isMap(metadata) ? metadata : {};
  if (typeof name !== "string" || name === "")
    return ["metadata.name: Required value: name or generateName is required"];
  if (!subdomain.test(name) || name.length > 253)
    return [`metadata.name: Invalid value: ${JSON.stringify(name)}: must be a lowercase RFC 1123 subdomain`];
  const checks = mergeSince(checksByFirstVersion, kubernetes);
  if (checks.refusesReservedName && name.endsWith(reservedSuffix))
    return [`metadata.name: Invalid value: ${JSON.stringify(name)}: ${reservedNameFault}`];
  if (webhooks == null) return [];
  if (!Array.isArray(webhooks)) return ["webhooks must be a list"];
  const names = new Set<unknown>();
  return webhooks.flatMap((entry: unknown, index) => {
    const place = `webhooks[${index}]`;
    if (!isMap(entry)) return [`${place} must be an object`];
    const isTwice = names.has(entry.name);
    names.add(entry.name);
    const faults = [
      ...checkName(entry.name),
      isTwice && `.name: Duplicate value: ${JSON.stringify(entry.name)}`,
      ...checkVersions(entry.admissionReviewVersions),
      checkSideEffects(entry.sideEffects),
      checkTimeout(entry.timeoutSeconds),
      checkEnum(entry.failurePolicy, ".failurePolicy", ["Fail", "Ignore"]),
      checkEnum(entry.matchPolicy, ".matchPolicy", ["Equivalent", "Exact"]),
      kind === "MutatingWebhookConfiguration" &&
        checkEnum(entry.reinvocationPolicy, ".reinvocationPolicy", ["IfNeeded", "Never"]),
      checkSelector(entry.namespaceSelector, ".namespaceSelector"),
      checkSelector(entry.objectSelector, ".objectSelector"),
      checkClientConfig(entry.clientConfig, checks),
      ...checkRules(entry.rules),
      ...checkConditions(entry.matchConditions),
    ];
    return faults.filter((fault) => typeof fault === "string").map((fault) => `${place}${fault}`);
  });
};

const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const qualified = /^([^/]+\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const label = /^[a-z]([-a-z0-9]*[a-z0-9])?$/;

/** Returns the API server's error text for the name of a webhook entry. */
const checkName = (name: unknown): Fault[] => {
  if (typeof name !== "string" || name === "") return [".name: Required value"];
  const value = `.name: Invalid value: ${JSON.stringify(name)}`;
  if (!subdomain.test(name) || name.length > 253) return [`${value}: must be a lowercase RFC 1123 subdomain`];
  return name.split(".").length < 3
    ? [`${value}: should be a domain with at least three segments separated by dots`]
    : [];
};

/** Returns the API server's error text for a webhook entry's admissionReviewVersions. */
const checkVersions = (versions: unknown): Fault[] => {
  const place = ".admissionReviewVersions";
  if (!isStringList(versions) || versions.length === 0)
    return [`${place}: Required value: must specify one of v1, v1beta1`];
  const bad = versions.find((version) => !label.test(version) || version.length > 63);
  if (bad !== undefined) return [`${place}: Invalid value: ${JSON.stringify(bad)}: must be a DNS-1035 label`];
  if (new Set(versions).size < versions.length) return [`${place}: Invalid value: duplicate version`];
  return versions.some((version) => version === "v1" || version === "v1beta1")
    ? []
    : [`${place}: Invalid value: must include at least one of v1, v1beta1`];
};

/** Checks a webhook's sideEffects. Some and Unknown pass: old stored configurations may have them, new ones not. */
const checkSideEffects = (value: unknown): Fault => {
  if (value == null) return ".sideEffects: Required value: must specify one of None, NoneOnDryRun";
  return checkEnum(value, ".sideEffects", ["None", "NoneOnDryRun", "Some", "Unknown"]);
};

const checkTimeout = (value: unknown): Fault =>
  value == null || (Number.isInteger(value) && Number(value) >= 1 && Number(value) <= 30)
    ? undefined
    : ".timeoutSeconds: Invalid value: the timeout value must be between 1 and 30 seconds";

const checkEnum = (value: unknown, place: string, allowed: string[]): Fault =>
  value == null || allowed.includes(String(value))
    ? undefined
    : `${place}: Unsupported value: ${JSON.stringify(value)}: supported values: ${allowed.map((option) => `"${option}"`).join(", ")}`;

const checkSelector = (value: unknown, place: string): Fault =>
  value == null || isLabelSelector(value) ? undefined : `${place}: Invalid value: must be a label selector`;

/** Returns the API server's error text for a webhook entry's clientConfig. */
const checkClientConfig = (value: unknown, checks: Partial<ConfigurationChecks>): Fault => {
  const { url, service, caBundle } = isMap(value) ? value : {};
  if ((url == null) === (service == null))
    return ".clientConfig: Required value: exactly one of url or service is required";
  if (caBundle != null && typeof caBundle !== "string") return ".clientConfig.caBundle must be a text";
  if (service != null) {
    const { name, namespace } = isMap(service) ? service : {};
    if (!name) return `.clientConfig.service.name: ${checks.missingServiceNameText}`;
    return namespace ? undefined : `.clientConfig.service.namespace: ${checks.missingServiceNamespaceText}`;
  }
  const fault = typeof url === "string" ? findUrlFault(url) : "must be a text";
  return fault && `.clientConfig.url: Invalid value: ${JSON.stringify(url)}: ${fault}`;
};

const desired = "desired format: https://host[/path]";

/** Returns what the API server refuses in a webhook's URL. */
const findUrlFault = (text: string): Fault => {
  if (!URL.canParse(text)) return `url must be a valid URL; ${desired}`;
  const { protocol, username, password } = new URL(text);
  if (protocol !== "https:") return `'https' is the only allowed URL scheme; ${desired}`;
  if (username || password) return "user information is not permitted in the URL";
  if (text.includes("#")) return "fragments are not permitted in the URL";
  return text.includes("?") ? "query parameters are not permitted in the URL" : undefined;
};

/** Returns the API server's error texts for a webhook entry's rules. */
const checkRules = (value: unknown): Fault[] => {
  if (value == null) return [];
  if (!Array.isArray(value)) return [".rules must be a list"];
  return value.flatMap((rule: unknown, index) =>
    isMap(rule)
      ? listRuleFaults(rule).map((fault) => `.rules[${index}]${fault}`)
      : [`.rules[${index}] must be an object`],
  );
};

/** The fields of a rule in which "*" must be the only element, and what messages call the elements. */
const wildcardFields: Record<string, string> = {
  operations: "operations",
  apiGroups: "API groups",
  apiVersions: "API versions",
};

/** Returns the error texts for one rule, such as ".operations: Required value". */
const listRuleFaults = (rule: JsonMap): string[] => {
  const faults: string[] = [];
  for (const key of [...Object.keys(wildcardFields), "resources"]) {
    const { [key]: value } = rule;
    if (!isStringList(value) || value.length === 0) faults.push(`.${key}: Required value`);
    else if (Object.hasOwn(wildcardFields, key) && value.length > 1 && value.includes("*"))
      faults.push(`.${key}: Invalid value: if '*' is present, must not specify other ${wildcardFields[key]}`);
  }
  const { operations, resources, apiVersions } = rule;
  if (isStringList(apiVersions) && apiVersions.includes("")) faults.push(".apiVersions: Required value");
  for (const operation of isStringList(operations) ? operations : []) {
    const fault = checkEnum(operation, ".operations", ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    if (fault) faults.push(fault);
  }
  const conflict = isStringList(resources) && findResourceConflict(resources);
  if (conflict) faults.push(`.resources: Invalid value: ${conflict}`);
  const scopeFault = checkEnum(rule.scope, ".scope", ["*", "Cluster", "Namespaced"]);
  return scopeFault ? [...faults, scopeFault] : faults;
};

/** Returns why a rule can't list these resources together, such as "pods/*" and "pods/status". */
const findResourceConflict = (resources: string[]): Fault => {
  if (resources.includes("")) return "must not be empty";
  if (resources.length > 1 && resources.includes("*/*")) return "if '*/*' is present, must not specify other resources";
  if (resources.includes("*") && resources.some((resource) => resource !== "*" && !resource.includes("/")))
    return "if '*' is present, must not specify other resources without subresources";
  for (const [index, path] of resources.entries()) {
    const [resource = "", sub] = path.split("/", 2);
    if (sub === undefined) continue;
    const earlier = resources.slice(0, index);
    if (sub !== "*" && earlier.includes(`${resource}/*`))
      return `if '${resource}/*' is present, must not specify ${path}`;
    if (resource !== "*" && earlier.includes(`*/${sub}`)) return `if '*/${sub}' is present, must not specify ${path}`;
  }
  return undefined;
};

/** Returns the API server's error texts for a webhook entry's matchConditions. */
const checkConditions = (value: unknown): Fault[] => {
  if (value == null) return [];
  if (!Array.isArray(value)) return [".matchConditions must be a list"];
  if (value.length > 64) return [`.matchConditions: Too many: ${value.length}: must have at most 64 items`];
  const names = new Set<unknown>();
  return value.map((condition: unknown, index) => {
    const place = `.matchConditions[${index}]`;
    const { name, expression } = isMap(condition) ? condition : {};
    const isTwice = names.has(name);
    names.add(name);
    if (typeof name !== "string" || name === "") return `${place}.name: Required value`;
    if (!qualified.test(name)) return `${place}.name: Invalid value: ${JSON.stringify(name)}: must be a qualified name`;
    if (isTwice) return `${place}.name: Duplicate value: ${JSON.stringify(name)}`;
    return typeof expression === "string" && expression.trim() !== ""
      ? undefined
      : `${place}.expression: Required value`;
  });
};

const isStringList = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((element) => typeof element === "string");
