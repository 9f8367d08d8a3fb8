import { toMap } from "../json.ts";
import type { MatchResources, NamedRuleWithOperations } from "../kubernetes/admissionregistration/v1.ts";
import type { ObjectReader } from "../needs.ts";
import { joinApiVersion } from "../objects/api-version.ts";
import type { Labels } from "../objects/label.ts";
import { isSelected, type LabelSelector } from "../objects/selection.ts";
import { matchesRequest } from "../request-match.ts";
import type { AdmissionRequest, GroupVersionResource } from "../review.ts";
import type { RequestMatch } from "../rule.ts";
import { noteComparedField } from "./observations.ts";

const virtualReviews = ["selfsubjectreviews", "tokenreviews"];
const virtualAccessReviews = [
  "localsubjectaccessreviews",
  "selfsubjectaccessreviews",
  "selfsubjectrulesreviews",
  "subjectaccessreviews",
];
const policies = ["validatingadmissionpolicies", "mutatingadmissionpolicies"];
const bindings = ["validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"];
/** The resources to which no policy applies, by group. */
const excluded: Readonly<Record<string, readonly string[]>> = {
  "authentication.k8s.io": virtualReviews,
  "authorization.k8s.io": virtualAccessReviews,
  "admissionregistration.k8s.io": [...policies, ...bindings],
};

/** Reports whether policies may apply to a resource. They don't apply to policies and to reviews of rights. */
export const isGovernedResource = ({ resource: { group, resource } }: AdmissionRequest): boolean =>
  !(Object.hasOwn(excluded, group) && excluded[group]?.includes(resource));

/** Converts a rule of a policy to a rule of a webhook entry, without resourceNames. */
export const toRequestMatch = (rule: NamedRuleWithOperations): RequestMatch => {
  const { apiGroups = [], apiVersions = [], resources = [], operations = [], scope } = rule;
  // The casts are safe: the policy is valid.
  return {
    apiGroups,
    apiVersions,
    resources,
    operations: operations as RequestMatch["operations"],
    ...(scope !== undefined && { scope: scope as NonNullable<RequestMatch["scope"]> }),
  };
};

/**
 * Reports whether the constraints of a policy or a binding match a request: the labels of its object, its resource (in
 * the version that the client used or, unless matchPolicy is Exact, in an equivalent one), and its namespace's labels.
 */
export const matchesConstraints = async (
  { namespaceSelector, objectSelector, ...resources }: MatchResources,
  request: AdmissionRequest,
  readNamespaceLabels: () => Promise<Labels>,
  discover: ObjectReader["discover"],
): Promise<boolean> => {
  noteComparedField("objectSelector");
  if (!matchesObjectSelector(toSelector(objectSelector), request)) return false;
  noteComparedField("resourceRules");
  if (!(await matchesResourceRules(resources, request, discover))) return false;
  noteComparedField("namespaceSelector");
  return matchesNamespaceSelector(toSelector(namespaceSelector), request, readNamespaceLabels);
};

/** Reports whether a policy's rules match a request and its excludeResourceRules don't. */
const matchesResourceRules = async (
  { excludeResourceRules = [], resourceRules = [], matchPolicy = "Equivalent" }: MatchResources,
  request: AdmissionRequest,
  discover: ObjectReader["discover"],
): Promise<boolean> => {
  const matchesAny = async (rules: readonly NamedRuleWithOperations[]) => {
    const original = request.requestResource ?? request.resource;
    if (rules.some((rule) => matchesRule(rule, request, original))) return true;
    if (matchPolicy === "Exact") return false;
    // Then, the rules are compared with the version to which the API server has converted the object.
    if (rules.some((rule) => matchesRule(rule, request, request.resource))) return true;
    for (const rule of rules)
      for (const equivalent of listEquivalents(rule, original))
        if (matchesRule(rule, request, equivalent) && (await isServed(equivalent, request, discover))) return true;
    return false;
  };
  if (await matchesAny(excludeResourceRules)) return false;
  return resourceRules.length === 0 || matchesAny(resourceRules);
};

/** Reports whether a rule matches the request as if it were for this resource. */
const matchesRule = (
  rule: NamedRuleWithOperations,
  request: AdmissionRequest,
  resource: GroupVersionResource,
): boolean => {
  const { resourceNames: names = [] } = rule;
  const subResource = request.requestSubResource ?? request.subResource ?? "";
  return (
    matchesRequest(toRequestMatch(rule), { ...request, resource, subResource }) &&
    (names.length === 0 || names.includes(request.name ?? ""))
  );
};

/** The groups that serve the same events. No other resource is in two groups. */
const groupsOfEvents = ["", "events.k8s.io"];

/** Returns where a rule may match the same objects: in other versions of the resource or, for events, another group. */
const listEquivalents = (
  { apiGroups = [], apiVersions = [] }: NamedRuleWithOperations,
  { group, version, resource }: GroupVersionResource,
): GroupVersionResource[] => {
  const isEvents = resource === "events" && groupsOfEvents.includes(group);
  const groups = isEvents ? groupsOfEvents : [group];
  // Both groups serve events only in v1; the caller then compares v1 with the rule's versions.
  const versions = isEvents ? ["v1"] : apiVersions.filter((name) => name !== "*");
  return groups
    .filter((name) => apiGroups.includes(name) || apiGroups.includes("*"))
    .flatMap((name) => versions.map((candidate) => ({ group: name, version: candidate, resource })))
    .filter((candidate) => candidate.group !== group || candidate.version !== version);
};

/** Reports whether the cluster serves a resource. */
const isServed = async (
  wanted: GroupVersionResource,
  { subResource }: AdmissionRequest,
  discover: ObjectReader["discover"],
): Promise<boolean> => {
  const path = subResource ? `${wanted.resource}/${subResource}` : wanted.resource;
  return (await discover(joinApiVersion(wanted)))?.some(({ resource }) => resource === path) === true;
};

/** Reports whether the labels of the object, or of the old object, match a selector. */
const matchesObjectSelector = (selector: LabelSelector, { object, oldObject }: AdmissionRequest): boolean =>
  selectsEverything(selector) ||
  [object, oldObject].some((value) => {
    const { metadata } = toMap(value);
    return metadata !== undefined && isSelected(selector, toMap(toMap(metadata).labels));
  });

/** Reports whether a namespaceSelector matches the request's namespace, or the Namespace itself. */
const matchesNamespaceSelector = async (
  selector: LabelSelector,
  { object, resource, subResource, namespace, operation }: AdmissionRequest,
  readNamespaceLabels: () => Promise<Labels>,
): Promise<boolean> => {
  const isNamespace = resource.resource === "namespaces";
  if (selectsEverything(selector) || (!namespace && !isNamespace)) return true;
  const isWritten = isNamespace && !subResource && (operation === "CREATE" || operation === "UPDATE");
  const labels = isWritten ? toMap(toMap(toMap(object).metadata).labels) : await readNamespaceLabels();
  return isSelected(selector, labels);
};

/** Returns a selector of a valid policy. By default, it selects everything. */
export const toSelector = (selector: MatchResources["namespaceSelector"]): LabelSelector =>
  // The cast is safe: the operators of a valid policy are known.
  (selector ?? {}) as LabelSelector;

/** Reports whether a selector has no requirement. */
export const selectsEverything = ({ matchLabels = {}, matchExpressions = [] }: LabelSelector): boolean =>
  Object.keys(matchLabels).length === 0 && matchExpressions.length === 0;
