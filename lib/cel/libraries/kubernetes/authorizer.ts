import { isSubdomain } from "../../../objects/label.ts";
import { countTraversal, getActualSize } from "../../cost-formulas.ts";
import { declareMethod, type FunctionDeclaration } from "../../functions.ts";
import { bool, string, struct, type Type } from "../../types.ts";
import { createNoSuchOverloadError, EvaluationError, LibraryObject, type Value } from "../../values.ts";
import { findLabelFaults } from "./format.ts";

export const authorizerType = struct("kubernetes.authorization.Authorizer");
const pathCheckType = struct("kubernetes.authorization.PathCheck");
const groupCheckType = struct("kubernetes.authorization.GroupCheck");
export const resourceCheckType = struct("kubernetes.authorization.ResourceCheck");
const decisionType = struct("kubernetes.authorization.Decision");

/** A user, with the fields of a SubjectAccessReview's spec. */
export interface Subject {
  readonly user: string;
  readonly uid?: string;
  readonly groups?: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

/** What an authorizer check asks, as in a SubjectAccessReview. */
interface ResourceAttributes {
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name?: string;
  /** Selectors as texts. The cluster parses them, and ignores a selector that it can't parse. */
  readonly fieldSelector?: { readonly rawSelector: string };
  readonly labelSelector?: { readonly rawSelector: string };
}

/** The question of a check: the spec of a SubjectAccessReview. */
export type AuthorizationAttributes = Subject &
  (
    | { readonly nonResourceAttributes: { readonly path: string; readonly verb: string } }
    | { readonly resourceAttributes: ResourceAttributes & { readonly version: "*"; readonly verb: string } }
  );

/**
 * Returns the answer to a check. If the cluster must be asked first, throws a MissingAuthorization; the expression is
 * evaluated again when the answer is known. An expression may ignore this error, as `check || true` does; its value is
 * then the same for every answer.
 */
export type Decide = (attributes: AuthorizationAttributes) => AuthorizationAnswer;

export interface AuthorizationAnswer {
  readonly allowed: boolean;
  readonly reason?: string;
  /** Why the cluster couldn't decide. */
  readonly error?: string;
}

/** The error of a check whose answer isn't known yet. */
export class MissingAuthorization extends EvaluationError {
  constructor() {
    super("only the cluster's authorizer knows the rights of users");
  }
}

/** A value of the authorizer library, such as a check. Upstream can't compare such values, not even with themselves. */
class AuthorizerValue<Content> extends LibraryObject {
  readonly type: Type;
  readonly content: Content;
  constructor(type: Type, content: Content) {
    super();
    this.type = type;
    this.content = content;
  }
  equals(): boolean {
    throw createNoSuchOverloadError();
  }
}

/** The user of a check, and the function that answers it. */
interface Inquirer {
  readonly subject: Subject;
  readonly decide: Decide;
}
type Authorizer = AuthorizerValue<Inquirer>;
type PathCheck = AuthorizerValue<Inquirer & { readonly path: string }>;
type GroupCheck = AuthorizerValue<Inquirer & { readonly group: string }>;
type ResourceCheck = AuthorizerValue<Inquirer & { readonly attributes: ResourceAttributes }>;
type Decision = AuthorizerValue<AuthorizationAnswer>;

/** Returns the value of the variable `authorizer`. */
export const createAuthorizer = (subject: Subject, decide: Decide): Authorizer =>
  new AuthorizerValue(authorizerType, { subject, decide });

/** Returns a check for a resource, such as the value of the variable `authorizer.requestResource`. */
export const createResourceCheck = ({ content }: Authorizer, attributes: ResourceAttributes): ResourceCheck =>
  new AuthorizerValue(resourceCheckType, { ...content, attributes });

/** Returns a text. Throws if it is empty, or has only characters that are white space in Go. */
const requireText = (text: string, name: string): string => {
  if (!/[^\s\u0085]|\ufeff/.test(text)) throw new EvaluationError(`${name} must not be empty`);
  return text;
};

const createPathCheck = ({ content }: Authorizer, path: string): PathCheck =>
  new AuthorizerValue(pathCheckType, { ...content, path: requireText(path, "path") });

const createGroupCheck = ({ content }: Authorizer, group: string): GroupCheck =>
  new AuthorizerValue(groupCheckType, { ...content, group });

const addResource = (check: GroupCheck, resource: string): ResourceCheck =>
  createResourceCheck(check, { group: check.content.group, resource: requireText(resource, "resource") });

/** Returns the authorizer for a service account, as authorizer.serviceAccount(namespace, name) does. */
const createServiceAccountAuthorizer = (
  { content: { decide } }: Authorizer,
  namespace: string,
  name: string,
): Authorizer => {
  if (!isSubdomain(name) || name.length > 253) throw new EvaluationError("Invalid service account name");
  if (findLabelFaults(namespace).length > 0) throw new EvaluationError("Invalid service account namespace");
  const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`];
  return createAuthorizer({ user: `system:serviceaccount:${namespace}:${name}`, groups }, decide);
};

const addAttribute = (name: "subresource" | "namespace" | "name") => (check: ResourceCheck, text: string) =>
  createResourceCheck(check, { ...check.content.attributes, [name]: text });

const addSelector = (name: "fieldSelector" | "labelSelector") => (check: ResourceCheck, rawSelector: string) =>
  createResourceCheck(check, {
    ...check.content.attributes,
    [name]: rawSelector === "" ? undefined : { rawSelector },
  });

const checkPath = ({ content: { subject, decide, path } }: PathCheck, verb: string): Decision =>
  new AuthorizerValue(decisionType, decide({ ...subject, nonResourceAttributes: { path, verb } }));

const checkResource = ({ content: { subject, decide, attributes } }: ResourceCheck, verb: string): Decision =>
  new AuthorizerValue(decisionType, decide({ ...subject, resourceAttributes: { ...attributes, version: "*", verb } }));

/** Returns the cost of a check. It is so high that an expression can have only two checks. */
const countCheck = () => 350_000;

/**
 * Returns the cost of a selector: 10 for the list of its requirements, the cost of parsing the text, and 50 for each
 * requirement. Upstream assumes the most requirements that a text can have: one for every two characters.
 */
const countSelector = ([, selector = null]: readonly Value[]): number => {
  const size = getActualSize(selector);
  return 10 + countTraversal(size) + 50 * countTraversal(size, 0.5);
};

// The parameters of methods: the target, and one or two texts.
const authorizer = [authorizerType, string];
const pathCheck = [pathCheckType, string];
const groupCheck = [groupCheckType, string];
const resourceCheck = [resourceCheckType, string];
const account = [authorizerType, string, string];

/** The functions of Kubernetes' CEL library for authorization. */
export const authorizerFunctions: readonly FunctionDeclaration[] = [
  declareMethod("path", "authorizer_path", authorizer, pathCheckType, createPathCheck),
  declareMethod("group", "authorizer_group", authorizer, groupCheckType, createGroupCheck),
  declareMethod("serviceAccount", "authorizer_serviceaccount", account, authorizerType, createServiceAccountAuthorizer),
  declareMethod("resource", "groupcheck_resource", groupCheck, resourceCheckType, addResource),
  declareMethod(
    "subresource",
    "resourcecheck_subresource",
    resourceCheck,
    resourceCheckType,
    addAttribute("subresource"),
  ),
  declareMethod("namespace", "resourcecheck_namespace", resourceCheck, resourceCheckType, addAttribute("namespace")),
  declareMethod("name", "resourcecheck_name", resourceCheck, resourceCheckType, addAttribute("name")),
  declareMethod(
    "fieldSelector",
    "authorizer_fieldselector",
    resourceCheck,
    resourceCheckType,
    addSelector("fieldSelector"),
    countSelector,
  ),
  declareMethod(
    "labelSelector",
    "authorizer_labelselector",
    resourceCheck,
    resourceCheckType,
    addSelector("labelSelector"),
    countSelector,
  ),
  declareMethod("check", "pathcheck_check", pathCheck, decisionType, checkPath, countCheck),
  declareMethod("check", "resourcecheck_check", resourceCheck, decisionType, checkResource, countCheck),
  declareMethod("allowed", "decision_allowed", [decisionType], bool, ({ content }: Decision) => content.allowed),
  declareMethod("reason", "decision_reason", [decisionType], string, ({ content }: Decision) => content.reason ?? ""),
  declareMethod(
    "errored",
    "decision_errored",
    [decisionType],
    bool,
    ({ content }: Decision) => content.error !== undefined,
  ),
  declareMethod("error", "decision_error", [decisionType], string, ({ content }: Decision) => content.error ?? ""),
];
