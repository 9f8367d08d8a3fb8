import { isSubdomain } from "../../objects/label.ts";
import { countTraversal, getActualSize } from "../cost.ts";
import { type FunctionDeclaration, member } from "../functions.ts";
import * as types from "../types.ts";
import { createNoSuchOverloadError, EvaluationError, LibraryObject, type Value } from "../values.ts";
import { findLabelFaults } from "./format.ts";

export const authorizerType = types.struct("kubernetes.authorization.Authorizer");
const pathCheckType = types.struct("kubernetes.authorization.PathCheck");
const groupCheckType = types.struct("kubernetes.authorization.GroupCheck");
export const resourceCheckType = types.struct("kubernetes.authorization.ResourceCheck");
const decisionType = types.struct("kubernetes.authorization.Decision");

/** A user, as the spec of a SubjectAccessReview names it. */
export interface Subject {
  readonly user: string;
  readonly uid?: string;
  readonly groups?: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

interface ResourceAttributes {
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name?: string;
  /** Selectors as they were written: a cluster parses them, and leaves out those that it can't parse. */
  readonly fieldSelector?: { readonly rawSelector: string };
  readonly labelSelector?: { readonly rawSelector: string };
}

/** What a check asks: the spec of a SubjectAccessReview. */
export type AuthorizationAttributes = Subject &
  (
    | { readonly nonResourceAttributes: { readonly path: string; readonly verb: string } }
    | { readonly resourceAttributes: ResourceAttributes & { readonly version: "*"; readonly verb: string } }
  );

/**
 * Returns the answer to a check. If the cluster has to be asked first, it throws a MissingAuthorization, and the
 * expression is evaluated again when the answer is there. The value of an expression that has a value in spite of the
 * error, such as `a || b`, doesn't depend on the answer.
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

/** Upstream can't compare these values, not even with themselves. */
abstract class IncomparableObject extends LibraryObject {
  equals(): boolean {
    throw createNoSuchOverloadError();
  }
}

export class Authorizer extends IncomparableObject {
  readonly subject: Subject;
  readonly decide: Decide;
  constructor(subject: Subject, decide: Decide) {
    super();
    this.subject = subject;
    this.decide = decide;
  }
  get type(): types.Type {
    return authorizerType;
  }
}

class PathCheck extends IncomparableObject {
  readonly authorizer: Authorizer;
  readonly path: string;
  constructor(authorizer: Authorizer, path: string) {
    super();
    this.authorizer = authorizer;
    this.path = path;
  }
  get type(): types.Type {
    return pathCheckType;
  }
}

class GroupCheck extends IncomparableObject {
  readonly authorizer: Authorizer;
  readonly group: string;
  constructor(authorizer: Authorizer, group: string) {
    super();
    this.authorizer = authorizer;
    this.group = group;
  }
  get type(): types.Type {
    return groupCheckType;
  }
}

/** Also the value of the variable `authorizer.requestResource`. */
export class ResourceCheck extends IncomparableObject {
  readonly authorizer: Authorizer;
  readonly attributes: ResourceAttributes;
  constructor(authorizer: Authorizer, attributes: ResourceAttributes) {
    super();
    this.authorizer = authorizer;
    this.attributes = attributes;
  }
  get type(): types.Type {
    return resourceCheckType;
  }
}

class Decision extends IncomparableObject {
  readonly answer: AuthorizationAnswer;
  constructor(answer: AuthorizationAnswer) {
    super();
    this.answer = answer;
  }
  get type(): types.Type {
    return decisionType;
  }
}

/** Throws for a text without any character but spaces, in Go's sense of them. */
const requireText = (text: string, name: string): void => {
  if (!/[^\s\u0085]|\ufeff/.test(text)) throw new EvaluationError(`${name} must not be empty`);
};

const createPathCheck = (authorizer: Authorizer, path: string): Value => {
  requireText(path, "path");
  return new PathCheck(authorizer, path);
};

const createResourceCheck = ({ authorizer, group }: GroupCheck, resource: string): Value => {
  requireText(resource, "resource");
  return new ResourceCheck(authorizer, { group, resource });
};

const createServiceAccount = ({ decide }: Authorizer, namespace: string, name: string): Value => {
  if (!isSubdomain(name) || name.length > 253) throw new EvaluationError("Invalid service account name");
  if (findLabelFaults(namespace).length > 0) throw new EvaluationError("Invalid service account namespace");
  const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`];
  return new Authorizer({ user: `system:serviceaccount:${namespace}:${name}`, groups }, decide);
};

const checkPath = ({ authorizer: { subject, decide }, path }: PathCheck, verb: string): Value =>
  new Decision(decide({ ...subject, nonResourceAttributes: { path, verb } }));

const checkResource = ({ authorizer: { subject, decide }, attributes }: ResourceCheck, verb: string): Value =>
  new Decision(decide({ ...subject, resourceAttributes: { ...attributes, version: "*", verb } }));

/** Declares a function that returns a check with one more attribute. */
const declareAttribute = (name: "subresource" | "namespace" | "name"): FunctionDeclaration => {
  const evaluate = ({ authorizer, attributes }: ResourceCheck, text: string) =>
    new ResourceCheck(authorizer, { ...attributes, [name]: text });
  const id = `resourcecheck_${name}`;
  return { name, overloads: [member(id, [resourceCheckType, types.string], resourceCheckType, evaluate)] };
};

const declareSelector = (name: "fieldSelector" | "labelSelector"): FunctionDeclaration => {
  const evaluate = ({ authorizer, attributes }: ResourceCheck, rawSelector: string) =>
    new ResourceCheck(authorizer, { ...attributes, [name]: rawSelector === "" ? undefined : { rawSelector } });
  const id = `authorizer_${name.toLowerCase()}`;
  return {
    name,
    overloads: [member(id, [resourceCheckType, types.string], resourceCheckType, evaluate)],
    // The list of requirements, parsing, and each requirement, which has at least two characters.
    cost: ([, selector = null]) => {
      const size = getActualSize(selector);
      return 10 + countTraversal(size) + 50 * countTraversal(size, 0.5);
    },
  };
};

const declareAnswer = (
  name: string,
  result: types.Type,
  get: (answer: AuthorizationAnswer) => boolean | string,
): FunctionDeclaration => {
  const evaluate = ({ answer }: Decision) => get(answer);
  return { name, overloads: [member(`decision_${name}`, [decisionType], result, evaluate)] };
};

export const authorizerFunctions: readonly FunctionDeclaration[] = [
  {
    name: "path",
    overloads: [member("authorizer_path", [authorizerType, types.string], pathCheckType, createPathCheck)],
  },
  {
    name: "group",
    overloads: [
      member(
        "authorizer_group",
        [authorizerType, types.string],
        groupCheckType,
        (authorizer: Authorizer, group: string) => new GroupCheck(authorizer, group),
      ),
    ],
  },
  {
    name: "serviceAccount",
    overloads: [
      member(
        "authorizer_serviceaccount",
        [authorizerType, types.string, types.string],
        authorizerType,
        createServiceAccount,
      ),
    ],
  },
  {
    name: "resource",
    overloads: [member("groupcheck_resource", [groupCheckType, types.string], resourceCheckType, createResourceCheck)],
  },
  declareAttribute("subresource"),
  declareAttribute("namespace"),
  declareAttribute("name"),
  declareSelector("fieldSelector"),
  declareSelector("labelSelector"),
  {
    name: "check",
    overloads: [
      member("pathcheck_check", [pathCheckType, types.string], decisionType, checkPath),
      member("resourcecheck_check", [resourceCheckType, types.string], decisionType, checkResource),
    ],
    // Kubernetes allows two checks in an expression.
    cost: () => 350_000,
  },
  declareAnswer("allowed", types.bool, ({ allowed }) => allowed),
  declareAnswer("reason", types.string, ({ reason = "" }) => reason),
  declareAnswer("errored", types.bool, ({ error }) => error !== undefined),
  declareAnswer("error", types.string, ({ error = "" }) => error),
];
