import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parse, type ScalarTag } from "yaml";
import type { RecordedCall } from "./aws-service.ts";
import { nothing, resolve, type Scope } from "./template.ts";

// Evaluates the rights of the roles in infra/aws/iam/pipeline.yml, by the Effect, Action, Resource and Condition of
// their statements.

export const templateFile = fileURLToPath(new URL("../../infra/aws/iam/pipeline.yml", import.meta.url));
export const [region, accountId] = ["eu-west-1", "123456789012"];

interface Statement {
  Effect: "Allow" | "Deny";
  Action: string | string[];
  Resource: string | string[];
  Condition?: Record<string, Record<string, string | string[]>>;
}
/** A statement with the name of its policy, and with its Action as a list. */
export interface PlacedStatement extends Statement {
  policy: string;
  actions: string[];
}
/** A call, as IAM evaluates it. */
export interface Call {
  action: string;
  resource: string;
  /** The values of condition keys. A key such as dynamodb:LeadingKeys has a list of values. */
  context?: Record<string, string | string[]>;
}
type Json = Record<string, unknown>;

/** YAML tags that convert the short forms of CloudFormation's functions, such as `!Ref`, to their JSON forms. */
const tags = ["Ref", "Condition", "Sub", "GetAtt", "If", "Equals", "Not", "And", "Or", "Join"].flatMap((name) => {
  const key = name === "Ref" || name === "Condition" ? name : `Fn::${name}`;
  const scalar: ScalarTag = { tag: `!${name}`, resolve: (text) => ({ [key]: text }) };
  const resolveList = (list: { toJSON(): unknown }) => ({ [key]: list.toJSON() });
  return [scalar, { tag: `!${name}`, collection: "seq" as const, resolve: resolveList }];
});

/** Reads the template, and resolves its conditions and references for these values of parameters. */
export const readAccess = async (values: Record<string, string | string[]> = {}) => {
  const template: Json = parse(await readFile(templateFile, "utf8"), { customTags: (usual) => [...usual, ...tags] });
  const [parameters, conditions] = [Object(template.Parameters), Object(template.Conditions)];
  const pseudo: Json = {
    "AWS::Region": region,
    "AWS::AccountId": accountId,
    "AWS::Partition": "aws",
    "AWS::NoValue": nothing,
  };
  /** Builds a text in place of the ARN of any resource, such as a policy. `role` below reads the id after the slash. */
  const buildPlaceholderArn = (id: string) => `arn:aws:iam::${accountId}:stack/${id}`;
  const scope: Scope = {
    ref: (id) => {
      if (id in pseudo) return pseudo[id];
      if (!(id in parameters)) return buildPlaceholderArn(id);
      const value = values[id] ?? parameters[id].Default;
      return parameters[id].Type === "CommaDelimitedList" ? [value].flat() : value;
    },
    attribute: (id) => buildPlaceholderArn(id),
  };
  const isMet = (condition: unknown): boolean => {
    const [[name, argument] = ["", undefined]] = Object.entries(Object(condition));
    const operands = [argument].flat();
    if (name === "Condition") return isMet(conditions[String(argument)]);
    if (name === "Fn::Not") return !isMet(operands[0]);
    if (name === "Fn::And") return operands.every(isMet);
    if (name === "Fn::Or") return operands.some(isMet);
    assert.equal(name, "Fn::Equals");
    const [left, right] = operands.map((value) => resolve(value, scope));
    return left === right;
  };
  const applyConditions = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(applyConditions);
    if (value === null || typeof value !== "object") return value;
    const choice = Object(value)["Fn::If"];
    if (choice !== undefined) {
      const [condition, valueIfMet, valueOtherwise] = choice;
      return applyConditions(isMet(conditions[condition]) ? valueIfMet : valueOtherwise);
    }
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, applyConditions(item)]));
  };
  const resources: [string, { Type: string; Properties: Json }][] = Object.entries<Json>(Object(template.Resources))
    .filter(([, { Condition }]) => Condition === undefined || isMet(conditions[String(Condition)]))
    .map(([id, { Type, Properties }]) => [
      id,
      { Type: String(Type), Properties: Object(resolve(applyConditions(Properties), scope)) },
    ]);
  const resourcesById = new Map(resources);
  const listPolicy = (id: string): PlacedStatement[] => {
    return placeStatements(Object(resourcesById.get(id)?.Properties.PolicyDocument), id);
  };
  return {
    resources: resourcesById,
    policy: listPolicy,
    /** Returns all statements of a role's policies. */
    role: (id: string): PlacedStatement[] =>
      [resourcesById.get(id)?.Properties.ManagedPolicyArns]
        .flat()
        .flatMap((arn) => listPolicy(String(arn).replace(/^.*\//, ""))),
    /** Returns the statements that say which subjects, services and accounts may assume a role. */
    trust: (id: string): Json[] => Object(resourcesById.get(id)?.Properties.AssumeRolePolicyDocument).Statement,
  };
};

/** Reports whether a string matches a pattern as in IAM: `*` stands for any characters, and `?` for one character. */
const matchesPattern = (pattern: string, string: string): boolean => {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${escaped.replace(/\*/g, ".*").replace(/\?/g, ".")}$`, "s").test(string);
};

/**
 * Reports whether an ARN matches a pattern as in IAM: `*` stands for any characters, and `?` for one character. In the
 * first five parts of an ARN, which colons separate, `*` and `?` match no colon.
 */
const matchesArn = (pattern: string, arn: string): boolean => {
  if (pattern === "*") return true;
  const splitArn = (text: string) => {
    const parts = text.split(":");
    return [...parts.slice(0, 5), parts.slice(5).join(":")];
  };
  const [wanted, found] = [splitArn(pattern), splitArn(arn)];
  return wanted.every((part, index) => matchesPattern(part, found[index] ?? ""));
};

/** Returns the statements of a policy document, each with the name of the policy and with a list of actions. */
export const placeStatements = ({ Statement }: { Statement: Statement[] }, policy: string): PlacedStatement[] =>
  Statement.map((statement) => ({ ...statement, policy, actions: [statement.Action].flat() }));

/** Returns an operator for keys with at most one value. It holds if `isMet` is true for one of the wanted values. */
const forOneValue =
  (isMet: (value: string | undefined, wanted: string) => boolean) =>
  ([value]: string[], wanted: string[]): boolean =>
    wanted.some((wantedValue) => isMet(value, wantedValue));

/** IAM's condition operators. They compare the values of a key in a call with the values in the condition. */
const operators: Record<string, (values: string[], wanted: string[]) => boolean> = {
  StringEquals: forOneValue((value, wanted) => value === wanted),
  StringEqualsIfExists: forOneValue((value, wanted) => value === undefined || value === wanted),
  ArnLike: forOneValue((value, wanted) => value !== undefined && matchesArn(wanted, value)),
  Null: ([value], [wanted]) => (value === undefined) === (wanted === "true"),
  // As in IAM, a call without values meets this condition.
  "ForAllValues:StringLike": (values, wanted) =>
    values.every((value) => wanted.some((pattern) => matchesPattern(pattern, value))),
};

const meetsCondition = (condition: Statement["Condition"], context: NonNullable<Call["context"]>): boolean =>
  Object.entries(condition ?? {}).every(([operator, wanted]) => {
    const isMet = operators[operator];
    assert.ok(isMet, `the stand-in doesn't know the condition ${operator}`);
    return Object.entries(wanted).every(([key, values]) =>
      isMet([context[key] ?? []].flat(), [values].flat().map(String)),
    );
  });

/** Returns the statement that allows a call; undefined if there is none, or if another statement denies the call. */
export const findAllowingStatement = (
  statements: PlacedStatement[],
  { action, resource, context = {} }: Call,
): PlacedStatement | undefined => {
  const matching = statements.filter(
    ({ actions, Resource, Condition }) =>
      actions.some((name) => name.toLowerCase() === action.toLowerCase()) &&
      [Resource].flat().some((pattern) => matchesArn(pattern, resource)) &&
      meetsCondition(Condition, context),
  );
  return matching.some(({ Effect }) => Effect === "Deny") ? undefined : matching[0];
};

/** The values of condition keys in calls that CloudFormation makes on behalf of a caller. */
export const cloudFormationContext = { "aws:CalledViaFirst": "cloudformation.amazonaws.com" };
export const buildArn = (service: string, resource: string) => `arn:aws:${service}:${region}:${accountId}:${resource}`;

/** Returns the calls that IAM evaluates for a recorded call. The recorded call is allowed if all these calls are. */
export const listIamCalls = ({ service, action, name, caller, context: recorded, rights }: RecordedCall): Call[] => {
  const context = { ...recorded, ...(caller === "cloudformation" && cloudFormationContext) };
  const buildCalls = (...resources: string[]) => resources.map((resource) => ({ action, resource, context }));
  // Every caller may read its own identity.
  if (action === "sts:GetCallerIdentity") return [];
  // A call that deletes several objects names only the bucket.
  const isBulkDeletion = action === "s3:DeleteObject" && !name.includes("/");
  if (service === "s3") return buildCalls(`arn:aws:s3:::${isBulkDeletion ? `${name}/any` : name}`);
  if (service === "ssm") return buildCalls(buildArn("ssm", `parameter${name}`));
  if (service === "eks") {
    const [cluster = "", principal] = name.split(" ");
    const clusterCalls = buildCalls(buildArn("eks", `cluster/${cluster}`));
    if (principal === undefined) return clusterCalls;
    const [, , , , account, role] = principal.split(":");
    const resource = buildArn("eks", `access-entry/${cluster}/${role?.replace("/", `/${account}/`)}/1a2b`);
    // A new entry with tags also needs the right to tag it.
    if (action === "eks:CreateAccessEntry") {
      const isTagged = Object.keys(context).some((key) => key.startsWith("aws:RequestTag/"));
      return [...clusterCalls, ...(isTagged ? [{ action: "eks:TagResource", resource, context }] : [])];
    }
    return [{ action, resource, context }];
  }
  if (service === "sns") return buildCalls(name);
  if (rights)
    return rights.map(({ action, table, key }) => {
      const item = key === undefined ? undefined : { "dynamodb:LeadingKeys": [key] };
      return { action, resource: buildArn("dynamodb", `table/${table}`), context: { ...context, ...item } };
    });
  // IAM evaluates a call that names no resource with the resource `*`.
  if (name === "") return buildCalls("*");
  // In policies, a log group's ARN ends in `:*` for all actions except those on tags.
  if (service === "logs") return buildCalls(buildArn("logs", `log-group:${name}:*`));
  if (service === "cloudformation") return buildCalls(buildArn("cloudformation", `stack/${name}/5f1b`));
  if (service === "apigateway") return buildCalls(`arn:aws:apigateway:${region}::${name}`);
  if (service === "lambda") {
    const arn = buildArn("lambda", `function:${name}`);
    // Postern deletes only versions, never functions.
    if (action === "lambda:DeleteFunction" && caller !== "cloudformation") return buildCalls(`${arn}:1`);
    // A call for a version or an alias needs the right for that ARN.
    return buildCalls(arn, `${arn}:1`);
  }
  throw new Error(`${service} ${action} ${name} has no ARN here`);
};
