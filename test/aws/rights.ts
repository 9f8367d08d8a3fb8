import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parse, type ScalarTag } from "yaml";
import type { RecordedCall } from "./aws-service.ts";
import { nothing, resolve, type Scope } from "./template.ts";

// What the roles of infra/aws/iam/pipeline.yml may do: statements are evaluated by Effect, Action, Resource and, of
// conditions, StringEquals, of whose keys a call has those that `Call` says; every other kind of condition or statement
// is refused when the file is read.
export const file = fileURLToPath(new URL("../../infra/aws/iam/pipeline.yml", import.meta.url));
export const [region, owner] = ["eu-west-1", "123456789012"];

interface Statement {
  Effect: "Allow" | "Deny";
  Action: string | string[];
  Resource: string | string[];
  Condition?: { StringEquals: Record<string, string> };
}
/** A statement and where it stands. */
export interface PlacedStatement extends Statement {
  policy: string;
  actions: string[];
}
/** Something that is asked of AWS, as IAM sees it. */
export interface Call {
  action: string;
  resource: string;
  context?: Record<string, string>;
}
type Json = Record<string, unknown>;

/** YAML's short forms of CloudFormation's functions, as JSON would have them. */
const tags = ["Ref", "Condition", "Sub", "GetAtt", "If", "Equals", "Not", "And", "Or", "Join"].flatMap((name) => {
  const key = name === "Ref" || name === "Condition" ? name : `Fn::${name}`;
  const scalar: ScalarTag = { tag: `!${name}`, resolve: (text) => ({ [key]: text }) };
  return [
    scalar,
    {
      tag: `!${name}`,
      collection: "seq" as const,
      resolve: (list: { toJSON(): unknown }) => ({ [key]: list.toJSON() }),
    },
  ];
});

/** The template as CloudFormation would make it with these parameters: conditions decided, references resolved. */
export const readAccess = async (given: Record<string, string | string[]> = {}) => {
  const template: Json = parse(await readFile(file, "utf8"), { customTags: (known) => [...known, ...tags] });
  const [parameters, conditions] = [Object(template.Parameters), Object(template.Conditions)];
  const pseudo: Json = {
    "AWS::Region": region,
    "AWS::AccountId": owner,
    "AWS::Partition": "aws",
    "AWS::NoValue": nothing,
  };
  const arnOf = (id: string) => `arn:aws:iam::${owner}:stack/${id}`;
  const scope: Scope = {
    ref: (id) => {
      if (id in pseudo) return pseudo[id];
      if (!(id in parameters)) return arnOf(id);
      const value = given[id] ?? parameters[id].Default;
      return parameters[id].Type === "CommaDelimitedList" ? [value].flat() : value;
    },
    attribute: (id) => arnOf(id),
  };
  const holds = (condition: unknown): boolean => {
    const [[name, argument] = ["", undefined]] = Object.entries(Object(condition));
    const all = [argument].flat();
    if (name === "Condition") return holds(conditions[String(argument)]);
    if (name === "Fn::Not") return !holds(all[0]);
    if (name === "Fn::And") return all.every(holds);
    if (name === "Fn::Or") return all.some(holds);
    assert.equal(name, "Fn::Equals");
    const [one, other] = all.map((value) => resolve(value, scope));
    return one === other;
  };
  const decided = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(decided);
    if (value === null || typeof value !== "object") return value;
    const choice = Object(value)["Fn::If"];
    if (choice !== undefined) return decided(choice[holds(conditions[choice[0]]) ? 1 : 2]);
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, decided(one)]));
  };
  const resources: [string, { Type: string; Properties: Json }][] = Object.entries<Json>(Object(template.Resources))
    .filter(([, { Condition }]) => Condition === undefined || holds(conditions[String(Condition)]))
    .map(([id, { Type, Properties }]) => [
      id,
      { Type: String(Type), Properties: Object(resolve(decided(Properties), scope)) },
    ]);
  const known = new Map(resources);
  const policy = (id: string): PlacedStatement[] => {
    const { Statement } = Object(known.get(id)?.Properties.PolicyDocument);
    return Statement.map((statement: Statement) => ({ ...statement, policy: id, actions: [statement.Action].flat() }));
  };
  return {
    resources: known,
    policy,
    /** All that a role may do. */
    role: (id: string): PlacedStatement[] =>
      [known.get(id)?.Properties.ManagedPolicyArns].flat().flatMap((arn) => policy(String(arn).replace(/^.*\//, ""))),
    /** Returns the statements that say which subjects, services and accounts may assume a role. */
    trust: (id: string): Json[] => Object(known.get(id)?.Properties.AssumeRolePolicyDocument).Statement,
  };
};

/**
 * Compares as IAM does: `*` is anything and `?` one character, within one of an ARN's first five parts, anywhere in the
 * last.
 */
const matchesArn = (pattern: string, arn: string): boolean => {
  if (pattern === "*") return true;
  const like = (one: string, other: string) =>
    new RegExp(
      `^${one
        .replace(/[.+^${}()|[\]\\]/g, "\\$&")
        .replace(/\*/g, ".*")
        .replace(/\?/g, ".")}$`,
    ).test(other);
  const parts = (text: string) => {
    const all = text.split(":");
    return [...all.slice(0, 5), all.slice(5).join(":")];
  };
  const [wanted, found] = [parts(pattern), parts(arn)];
  return wanted.every((part, index) => like(part, found[index] ?? ""));
};

/** The statement that allows a call; none where none does, or one denies it. */
export const findAllowingStatement = (
  statements: PlacedStatement[],
  { action, resource, context = {} }: Call,
): PlacedStatement | undefined => {
  const about = statements.filter(
    ({ actions, Resource, Condition }) =>
      actions.some((one) => one.toLowerCase() === action.toLowerCase()) &&
      [Resource].flat().some((one) => matchesArn(one, resource)) &&
      Object.entries(Condition?.StringEquals ?? {}).every(([key, value]) => context[key] === value),
  );
  return about.some(({ Effect }) => Effect === "Deny") ? undefined : about[0];
};

export const byCloudFormation = { "aws:CalledViaFirst": "cloudformation.amazonaws.com" };
export const buildArn = (service: string, resource: string) => `arn:aws:${service}:${region}:${owner}:${resource}`;

/** Returns the calls that IAM would check for a recorded call; all of them must be allowed. */
export const listIamCalls = ({ service, action, name, caller }: RecordedCall): Call[] => {
  const context = caller === "cloudformation" ? byCloudFormation : {};
  const about = (...resources: string[]) => resources.map((resource) => ({ action, resource, context }));
  // Every caller may ask for its own identity.
  if (action === "sts:GetCallerIdentity") return [];
  if (service === "s3")
    return about(`arn:aws:s3:::${action === "s3:DeleteObject" && !name.includes("/") ? `${name}/any` : name}`);
  if (service === "ssm") return about(buildArn("ssm", `parameter${name}`));
  if (service === "eks") return about(buildArn("eks", `cluster/${name}`));
  // Not all calls are about something.
  if (name === "") return about("*");
  if (service === "cloudformation") return about(buildArn("cloudformation", `stack/${name}/5f1b`));
  if (service === "lambda") {
    const arn = buildArn("lambda", `function:${name}`);
    // Postern deletes versions alone.
    if (action === "lambda:DeleteFunction" && caller !== "cloudformation") return about(`${arn}:1`);
    // A call for a version or an alias needs the right for that ARN.
    return about(arn, `${arn}:1`);
  }
  throw new Error(`${service} ${action} ${name} has no ARN here`);
};
