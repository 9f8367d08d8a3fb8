import { AwsError } from "./aws-service.ts";

// Reads CloudFormation's templates: validates them, sorts their resources by dependencies, and computes the functions
// in their values, such as Ref.

export interface DeclaredResource {
  Type: string;
  Properties?: Record<string, unknown>;
  DependsOn?: string | string[];
  DeletionPolicy?: string;
  UpdateReplacePolicy?: string;
}

export interface Template {
  Resources: Record<string, DeclaredResource>;
  Outputs?: Record<string, { Value: unknown; Description?: string }>;
  Description?: string;
}

/** Finds the values of references. */
export interface Scope {
  /** Returns the value of `Ref: ID`. */
  ref(id: string): unknown;
  /** Returns the value of `Fn::GetAtt: [ID, NAME]`. */
  attribute(id: string, name: string): unknown;
}

const createInvalid = (message: string) => new AwsError(400, "ValidationError", message);
/** The value of `Ref: AWS::NoValue`. A property with this value is omitted. */
export const nothing = Symbol("AWS::NoValue");

/** Parses a template; throws if it is invalid or has references to missing resources. */
export const readTemplate = (text: string): Template => {
  const template = parseTemplate(text);
  const { Resources, Conditions } = template;
  if (Object.keys(Object(Resources)).length === 0)
    throw createInvalid("Template format error: At least one Resources member must be defined.");
  if (Object.keys(Resources).length > 500)
    throw createInvalid(
      `Template format error: Number of resources, ${Object.keys(Resources).length}, is greater than maximum allowed, 500`,
    );
  if (Conditions !== undefined) throw createInvalid("the stand-in of CloudFormation knows no Conditions");
  for (const [id, declared] of Object.entries(Object(Resources))) {
    if (!/^[A-Za-z0-9]{1,255}$/.test(id))
      throw createInvalid(`Template format error: Resource name ${id} is non alphanumeric.`);
    if (typeof Object(declared).Type !== "string")
      throw createInvalid(
        `Template format error: [/Resources/${id}] Every Resources object must contain a Type member.`,
      );
  }
  const declaredIds = new Set(Object.keys(Resources));
  const referencedIds = [
    ...Object.values(template.Resources).flatMap((declared) => [...findDependencies(declared)]),
    ...findReferences(template.Outputs),
  ];
  const unresolvedIds = [...new Set(referencedIds)].filter((id) => !declaredIds.has(id) && !id.startsWith("AWS::"));
  if (unresolvedIds.length > 0)
    throw createInvalid(
      `Template format error: Unresolved resource dependencies [${unresolvedIds.join(", ")}] in the Resources block of the template`,
    );
  // Throws if dependencies are circular.
  sortResources(template);
  return template;
};

const parseTemplate = (text: string): Template & { Conditions?: unknown } => {
  try {
    return JSON.parse(text);
  } catch {
    throw createInvalid("Template format error: JSON not well-formed.");
  }
};

/** Returns the ids of resources in the template's order, but each after the resources on which it depends. */
export const sortResources = ({ Resources }: Template): string[] => {
  const sorted = new Set<string>();
  const visit = (id: string, dependents: string[]) => {
    const declared = Resources[id];
    if (sorted.has(id) || !declared) return;
    if (dependents.includes(id))
      throw createInvalid(`Circular dependency between resources: [${dependents.join(", ")}]`);
    for (const dependency of findDependencies(declared)) visit(dependency, [...dependents, id]);
    sorted.add(id);
  };
  for (const id of Object.keys(Resources)) visit(id, []);
  return [...sorted];
};

/** Returns the ids of the resources on which a resource depends. */
export const findDependencies = ({ Properties, DependsOn = [] }: DeclaredResource) =>
  new Set([...findReferences(Properties), ...[DependsOn].flat()]);

/** Returns every logical id in a Ref, Fn::GetAtt or Fn::Sub. */
const findReferences = (value: unknown): Set<string> => {
  const found = new Set<string>();
  const add = (id: string) => {
    found.add(id);
    return "";
  };
  resolve(value, { ref: add, attribute: add });
  return found;
};

/** Returns a copy of a value in which functions such as Ref are replaced by their results. */
export const resolve = (value: unknown, scope: Scope): unknown => {
  if (Array.isArray(value)) return value.map((item) => resolve(item, scope)).filter((item) => item !== nothing);
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value);
  const [[name, argument] = ["", undefined]] = entries;
  if (entries.length === 1 && name === "Ref") return scope.ref(String(argument));
  if (entries.length === 1 && name.startsWith("Fn::")) return compute(name, argument, scope);
  return Object.fromEntries(
    entries.map(([key, item]) => [key, resolve(item, scope)] as const).filter(([, item]) => item !== nothing),
  );
};

/** Computes Fn::GetAtt, Fn::Sub or Fn::Join. */
const compute = (name: string, argument: unknown, scope: Scope): unknown => {
  if (name === "Fn::GetAtt") {
    const [id = "", ...attribute] = Array.isArray(argument) ? argument : String(argument).split(".");
    return scope.attribute(String(id), attribute.join("."));
  }
  if (name === "Fn::Sub") {
    const [text, variables] = Array.isArray(argument) ? argument : [argument, {}];
    const values = Object(resolve(variables, scope));
    return String(text).replace(/\$\{([^}]*)\}/g, (_, name: string) => {
      // `${!NAME}` stands for the characters `${NAME}`.
      if (name.startsWith("!")) return `\${${name.slice(1)}}`;
      if (Object.hasOwn(values, name)) return String(values[name]);
      const [id = "", ...attribute] = name.split(".");
      return String(attribute.length > 0 ? scope.attribute(id, attribute.join(".")) : scope.ref(id));
    });
  }
  const list: unknown = resolve(argument, scope);
  if (Array.isArray(list) && name === "Fn::Join") return [list[1]].flat().map(String).join(String(list[0]));
  throw createInvalid(`the stand-in of CloudFormation knows no ${name}`);
};
