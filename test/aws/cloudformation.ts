import { randomBytes, randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import {
  AwsError,
  type AwsRequest,
  type AwsService,
  type CallRecorder,
  recordCall,
  refuseInQuery,
  requireAllowed,
  toXml,
  xmlType,
} from "./aws-service.ts";
import type { CloudWatch } from "./cloudwatch.ts";
import type { Gateways, StackResource } from "./gateways.ts";
import type { Lambda } from "./lambda.ts";
import type { Logs } from "./logs.ts";
import type { Storage } from "./moto.ts";
import { nameKeys, openKinds, type ResourcePlace } from "./resources.ts";
import {
  findDependencies,
  nothing,
  readTemplate,
  resolve,
  type Scope,
  sortResources,
  type Template,
} from "./template.ts";

// A stand-in for CloudFormation: it creates stacks from templates, directly or by change sets, with CloudFormation's
// events, rollbacks and errors. An operation runs in the background; callers ask for its state.

interface CreatedResource extends StackResource {
  /** The logical id. */
  id: string;
  attributes: Record<string, string>;
  /** The DeletionPolicy and the UpdateReplacePolicy in the template, such as "Retain". */
  deletion: string | undefined;
  replacement: string | undefined;
  status: string;
  reason?: string | undefined;
  updated: Date;
}

interface Event {
  EventId: string;
  StackId: string;
  StackName: string;
  LogicalResourceId: string;
  PhysicalResourceId: string;
  ResourceType: string;
  Timestamp: Date;
  ResourceStatus: string;
  ResourceStatusReason: string | undefined;
}

/** The template to which a stack is changed, as text and parsed. */
interface WantedStack {
  text: string;
  template: Template;
}

interface ChangeSet {
  id: string;
  name: string;
  wanted: WantedStack;
  changes: { Action: string; LogicalResourceId: string; ResourceType: string }[];
  /** The names of existing resources that an import takes over, by logical id; undefined if nothing is imported. */
  imports: Map<string, string> | undefined;
  failure: string | undefined;
  created: Date;
}

export interface Stack {
  id: string;
  name: string;
  status: string;
  reason: string | undefined;
  /** The deployed template; undefined while only a change set exists. */
  deployed: WantedStack | undefined;
  resources: Map<string, CreatedResource>;
  outputs: Record<string, { value: string; description: string | undefined }>;
  /** The events of the stack, the newest first. */
  events: Event[];
  changeSets: Map<string, ChangeSet>;
  created: Date;
  updated: Date | undefined;
}

export interface CloudFormation extends AwsService {
  stacks: Map<string, Stack>;
  /** The resources that were removed from their stacks, but still exist because of the policy Retain. */
  retained: Set<StackResource>;
  /** Returns the stack with this name or ARN. A deleted stack is found only by its ARN. */
  stack(name: string): Stack | undefined;
  /** Waits until no operation runs any more. */
  waitUntilIdle(): Promise<void>;
}

interface StackServices {
  lambda: Lambda;
  logs: Logs;
  storage: Storage;
  gateways: Gateways;
  cloudwatch: CloudWatch;
  recorder: CallRecorder;
  region: string;
}

type Form = URLSearchParams;
const account = "123456789012";
const pageSize = 100;
const mostBodyBytes = 51_200;
const createValidationError = (message: string) => new AwsError(400, "ValidationError", message);

export const openCloudFormation = ({ recorder, ...services }: StackServices): CloudFormation => {
  const { lambda, gateways, storage, region } = services;
  const stacks = new Map<string, Stack>();
  const work = new Set<Promise<void>>();
  const retained = new Set<StackResource>();
  const getKind = openKinds({
    ...services,
    callLambda: (action, name, input, query) => {
      const call = { service: "lambda", action: `lambda:${action}`, name, caller: "cloudformation" };
      return recordCall(recorder, call, () => lambda.act(action, name, input, query));
    },
    requireGatewayRight: (action, name, context) =>
      requireAllowed(recorder, {
        service: "apigateway",
        action: `apigateway:${action}`,
        name,
        caller: "cloudformation",
        context,
      }),
  });

  const findByName = (name: string) =>
    stacks.get(name) ?? [...stacks.values()].find((stack) => stack.name === name && stack.status !== "DELETE_COMPLETE");
  const getStack = (form: Form): Stack => {
    const name = form.get("StackName") ?? "";
    const stack = findByName(name);
    if (!stack) throw createValidationError(`Stack with id ${name} does not exist`);
    return stack;
  };
  /** Sets the status of a resource, or without one the stack's status, and adds an event to the stack. */
  const recordEvent = (stack: Stack, status: string, reason?: string, resource?: CreatedResource) => {
    Object.assign(resource ?? stack, { status, reason });
    if (resource) resource.updated = new Date();
    stack.events.unshift({
      EventId: randomUUID(),
      StackId: stack.id,
      StackName: stack.name,
      LogicalResourceId: resource?.id ?? stack.name,
      PhysicalResourceId: resource?.physical ?? stack.id,
      ResourceType: resource?.type ?? "AWS::CloudFormation::Stack",
      Timestamp: new Date(),
      ResourceStatus: status,
      ResourceStatusReason: reason,
    });
    gateways.serve(stack.id, [...stack.resources.values()]);
  };
  /** Starts an operation in the background. */
  const startWork = (stack: Stack, act: () => Promise<void>) => {
    const running = act()
      .catch((error: Error) => recordEvent(stack, "UPDATE_ROLLBACK_FAILED", String(error.stack)))
      .finally(() => work.delete(running));
    work.add(running);
  };

  /** Returns the values that Ref and Fn::GetAtt find in a stack's template. */
  const buildScope = (stack: Stack): Scope => {
    const pseudoParameters: Record<string, unknown> = {
      "AWS::Region": region,
      "AWS::AccountId": account,
      "AWS::Partition": "aws",
      "AWS::URLSuffix": "amazonaws.com",
      "AWS::StackName": stack.name,
      "AWS::StackId": stack.id,
      "AWS::NoValue": nothing,
    };
    return {
      ref: (id) => pseudoParameters[id] ?? stack.resources.get(id)?.physical,
      attribute: (id, name) => {
        const value = stack.resources.get(id)?.attributes[name];
        if (value === undefined)
          throw createValidationError(`Template error: resource ${id} does not support attribute type ${name}`);
        return value;
      },
    };
  };
  /** Returns where a new resource belongs, with a random name for the case that the template states none. */
  const buildPlace = (stack: Stack, id: string): ResourcePlace => {
    const random = randomBytes(6).toString("hex").toUpperCase();
    return { stack: stack.id, id, name: `${stack.name.slice(0, 24)}-${id.slice(0, 24)}-${random}` };
  };
  /** Throws if a resource of this type and name exists already, maybe in another stack. */
  const requireFreeName = (type: string, properties: Record<string, unknown>) => {
    const name = properties[nameKeys[type] ?? ""];
    // The kind of log groups checks this itself, because log groups also exist without stacks.
    if (type === "AWS::Logs::LogGroup") return;
    const stackResources = [...stacks.values()].flatMap(({ resources }) => [...resources.values()]);
    const isTaken = [...stackResources, ...retained].some((found) => found.type === type && found.physical === name);
    if (name !== undefined && isTaken) throw new AwsError(409, "AlreadyExists", `${name} already exists`);
  };

  /** Changes a stack to the wanted template; after a failure it rolls the stack back. */
  const apply = async (stack: Stack, wanted: WantedStack, verb: "CREATE" | "UPDATE") => {
    const before = stack.deployed;
    const undoSteps: (() => Promise<void>)[] = [];
    /** The resources that the new template replaces or no longer has; they are deleted last. */
    const leftovers: { resource: CreatedResource; policy: string | undefined }[] = [];
    const scope = buildScope(stack);

    const createResource = async (
      id: string,
      type: string,
      properties: Record<string, unknown>,
      policies: Partial<CreatedResource>,
    ) => {
      const previous = stack.resources.get(id);
      const resource: CreatedResource = {
        id,
        type,
        properties,
        physical: "",
        attributes: {},
        deletion: undefined,
        replacement: undefined,
        status: "",
        updated: new Date(),
        ...policies,
      };
      stack.resources.set(id, resource);
      undoSteps.push(async () => {
        // Retained resources stay, even if their creation is rolled back.
        if (resource.deletion !== "Retain" && resource.physical)
          await getKind(type).remove(resource.physical, properties);
        recordEvent(stack, resource.deletion === "Retain" ? "DELETE_SKIPPED" : "DELETE_COMPLETE", undefined, resource);
        if (previous) stack.resources.set(id, previous);
        else stack.resources.delete(id);
      });
      recordEvent(stack, "CREATE_IN_PROGRESS", undefined, resource);
      await tryOperation(stack, resource, "CREATE", async () => {
        requireFreeName(type, properties);
        return getKind(type).make(properties, buildPlace(stack, id));
      });
    };

    try {
      for (const id of sortResources(wanted.template)) {
        const declared = wanted.template.Resources[id];
        if (!declared) continue;
        const { Type: type, DeletionPolicy: deletion, UpdateReplacePolicy: replacement } = declared;
        const properties: Record<string, unknown> = Object(resolve(declared.Properties ?? {}, scope));
        const policies = { deletion, replacement };
        const resource = stack.resources.get(id);
        if (!resource) await createResource(id, type, properties, policies);
        else if (resource.type !== type)
          throw createValidationError(
            `Update of resource type is not permitted. The new template modifies resource type of ${id}`,
          );
        else if (isDeepStrictEqual(resource.properties, properties)) Object.assign(resource, policies);
        else {
          recordEvent(stack, "UPDATE_IN_PROGRESS", undefined, resource);
          const copyBefore = { ...resource };
          let isReplaced = false;
          undoSteps.push(async () => {
            if (isReplaced) return;
            recordEvent(stack, "UPDATE_IN_PROGRESS", undefined, resource);
            await getKind(type).change(copyBefore.physical, properties, copyBefore.properties, buildPlace(stack, id));
            Object.assign(resource, copyBefore);
            recordEvent(stack, "UPDATE_COMPLETE", undefined, resource);
          });
          await tryOperation(stack, resource, "UPDATE", async () => {
            const changed = await getKind(type).change(
              resource.physical,
              resource.properties,
              properties,
              buildPlace(stack, id),
            );
            isReplaced = changed === undefined;
            return changed ?? resource;
          });
          if (isReplaced) {
            leftovers.push({ resource: copyBefore, policy: copyBefore.replacement });
            await createResource(id, type, properties, policies);
          } else Object.assign(resource, { properties, ...policies });
        }
      }
      const outputs = Object.entries(wanted.template.Outputs ?? {}).map(([key, { Value, Description }]) => {
        return [key, { value: String(resolve(Value, scope)), description: Description }] as const;
      });
      stack.outputs = Object.fromEntries(outputs);
    } catch (error) {
      const failed = [...stack.resources.values()]
        .filter(({ status }) => status.endsWith("_FAILED"))
        .map(({ id }) => id);
      const reason =
        failed.length > 0
          ? `The following resource(s) failed to ${verb.toLowerCase()}: [${failed.join(", ")}]. `
          : String(error instanceof Error ? error.message : error);
      const rollback = verb === "CREATE" ? "ROLLBACK" : "UPDATE_ROLLBACK";
      recordEvent(stack, `${rollback}_IN_PROGRESS`, reason);
      try {
        for (const step of undoSteps.reverse()) await step();
      } catch (problem) {
        recordEvent(stack, `${rollback}_FAILED`, String(problem instanceof Error ? problem.message : problem));
        return;
      }
      if (verb === "UPDATE") recordEvent(stack, "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS");
      stack.deployed = before ?? wanted;
      recordEvent(stack, `${rollback}_COMPLETE`);
      return;
    }

    if (verb === "UPDATE") recordEvent(stack, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS");
    const dropped = before ? sortResources(before.template).filter((id) => !(id in wanted.template.Resources)) : [];
    for (const id of dropped.reverse()) {
      const resource = stack.resources.get(id);
      if (resource) leftovers.push({ resource, policy: resource.deletion });
    }
    for (const { resource, policy } of leftovers) {
      if (dropped.includes(resource.id)) stack.resources.delete(resource.id);
      if (policy === "Retain") {
        retained.add(resource);
        recordEvent(stack, "DELETE_SKIPPED", undefined, { ...resource });
      }
      // The update has succeeded already, so a resource that can't be deleted is only left over.
      else await deleteResource(stack, { ...resource }).catch(() => {});
    }
    Object.assign(stack, { deployed: wanted, updated: verb === "UPDATE" ? new Date() : undefined });
    recordEvent(stack, `${verb}_COMPLETE`);
  };

  /** Runs an operation on a resource, and records whether it succeeded. */
  const tryOperation = async (
    stack: Stack,
    resource: CreatedResource,
    verb: "CREATE" | "UPDATE",
    act: () => Promise<{ physical: string; attributes: Record<string, string> }>,
  ) => {
    try {
      const { physical, attributes } = await act();
      Object.assign(resource, { physical, attributes });
    } catch (error) {
      const { status, kind, message } = toAwsError(error);
      const reason = `Resource handler returned message: "${message} (Status Code: ${status})" (HandlerErrorCode: ${kind})`;
      recordEvent(stack, `${verb}_FAILED`, reason, resource);
      throw error;
    }
    recordEvent(stack, `${verb}_COMPLETE`, undefined, resource);
  };
  /** Deletes a resource, and records whether that succeeded. */
  const deleteResource = async (stack: Stack, resource: CreatedResource) => {
    recordEvent(stack, "DELETE_IN_PROGRESS", undefined, resource);
    try {
      if (resource.physical) await getKind(resource.type).remove(resource.physical, resource.properties);
    } catch (error) {
      recordEvent(stack, "DELETE_FAILED", toAwsError(error).message, resource);
      throw error;
    }
    recordEvent(stack, "DELETE_COMPLETE", undefined, resource);
  };

  /**
   * Deletes a stack's resources, each one before its dependencies. If a resource can't be deleted, its dependencies
   * aren't deleted either.
   */
  const deleteResources = async (stack: Stack) => {
    const template = stack.deployed?.template ?? { Resources: {} };
    const order = [...sortResources(template), ...stack.resources.keys()];
    const keptIds = new Set<string>();
    const failed: string[] = [];
    for (const id of [...new Set(order)].reverse()) {
      const resource = stack.resources.get(id);
      if (!resource) continue;
      const declared = template.Resources[id];
      const keepDependencies = () => {
        for (const other of declared ? findDependencies(declared) : []) keptIds.add(other);
      };
      if (keptIds.has(id)) {
        keepDependencies();
        continue;
      }
      if (resource.deletion === "Retain") {
        retained.add(resource);
        recordEvent(stack, "DELETE_SKIPPED", undefined, resource);
      } else {
        const isDeleted = await deleteResource(stack, resource).then(
          () => true,
          () => false,
        );
        if (!isDeleted) {
          failed.push(id);
          keepDependencies();
          continue;
        }
      }
      stack.resources.delete(id);
    }
    if (failed.length > 0) {
      recordEvent(stack, "DELETE_FAILED", `The following resource(s) failed to delete: [${failed.join(", ")}]. `);
      return;
    }
    await gateways.close(stack.id);
    recordEvent(stack, "DELETE_COMPLETE");
  };

  /** Returns the template of a request: its TemplateBody, or the object at its TemplateURL. */
  const readTemplateText = async (form: Form): Promise<string> => {
    const body = form.get("TemplateBody");
    if (body !== null) {
      if (Buffer.byteLength(body) > mostBodyBytes)
        throw createValidationError(
          "1 validation error detected: 'templateBody' failed to satisfy constraint: Member must have length less than or equal to 51200",
        );
      return body;
    }
    const [, bucket = "", ...key] = new URL(form.get("TemplateURL") ?? "http://none").pathname.split("/");
    const bytes = await storage.read(bucket, key.map(decodeURIComponent).join("/"));
    if (bytes === undefined) throw createValidationError("S3 error: Access Denied");
    if (bytes.length > 1024 * 1024) throw createValidationError("Template may not exceed 1000000 bytes in size.");
    return String(bytes);
  };
  const readWantedStack = async (form: Form): Promise<WantedStack> => {
    const text = await readTemplateText(form);
    const template = readTemplate(text);
    const capabilities = [...form].filter(([key]) => key.startsWith("Capabilities.member.")).map(([, value]) => value);
    const roles = Object.values(template.Resources).filter(({ Type }) => Type === "AWS::IAM::Role");
    const needed = roles.some(({ Properties }) => Properties?.RoleName !== undefined)
      ? "CAPABILITY_NAMED_IAM"
      : "CAPABILITY_IAM";
    if (roles.length > 0 && !capabilities.includes("CAPABILITY_NAMED_IAM") && !capabilities.includes(needed))
      throw new AwsError(400, "InsufficientCapabilitiesException", `Requires capabilities : [${needed}]`);
    return { text, template };
  };
  const createStack = (name: string): Stack => {
    if (!/^[a-zA-Z][-a-zA-Z0-9]{0,127}$/.test(name))
      throw createValidationError(`1 validation error detected: '${name}' at 'stackName'`);
    const stack: Stack = {
      id: `arn:aws:cloudformation:${region}:${account}:stack/${name}/${randomUUID()}`,
      name,
      status: "",
      reason: undefined,
      deployed: undefined,
      resources: new Map(),
      outputs: {},
      events: [],
      changeSets: new Map(),
      created: new Date(),
      updated: undefined,
    };
    stacks.set(stack.id, stack);
    return stack;
  };
  const requireUpdatable = (stack: Stack) => {
    if (!/^(CREATE|UPDATE|UPDATE_ROLLBACK|IMPORT|IMPORT_ROLLBACK)_COMPLETE$/.test(stack.status))
      throw createValidationError(`Stack:${stack.id} is in ${stack.status} state and can not be updated.`);
  };
  const hasTemplate = (deployed: WantedStack | undefined, wanted: WantedStack) =>
    isDeepStrictEqual(deployed?.template, wanted.template);
  const findChangeSet = (form: Form): [Stack | undefined, ChangeSet | undefined] => {
    const name = form.get("ChangeSetName") ?? "";
    const stack = form.has("StackName")
      ? findByName(form.get("StackName") ?? "")
      : [...stacks.values()].find(({ changeSets }) => [...changeSets.values()].some(({ id }) => id === name));
    return [stack, stack && [...stack.changeSets.values()].find((set) => set.name === name || set.id === name)];
  };
  const getChangeSet = (form: Form): { stack: Stack; changeSet: ChangeSet } => {
    const [stack, changeSet] = findChangeSet(form);
    if (stack && changeSet) return { stack, changeSet };
    throw new AwsError(404, "ChangeSetNotFound", `ChangeSet [${form.get("ChangeSetName")}] does not exist`);
  };
  /** Returns the names of the log groups to import, by logical id; throws if the template changes anything else. */
  const readImports = (form: Form, stack: Stack, template: Template): Map<string, string> => {
    const ids = [...form].filter(([key]) => /^ResourcesToImport\.member\.\d+\.LogicalResourceId$/.test(key));
    const imports = new Map(
      ids.map(([key, id]) => {
        const prefix = key.replace("LogicalResourceId", "ResourceIdentifier.entry.1");
        return [id, form.get(`${prefix}.key`) === "LogGroupName" ? (form.get(`${prefix}.value`) ?? "") : ""];
      }),
    );
    const deployed = { Resources: {}, ...stack.deployed?.template };
    const notImported = Object.entries(template.Resources).filter(([id]) => !imports.has(id));
    if (!isDeepStrictEqual(deployed, { ...template, Resources: Object.fromEntries(notImported) }))
      throw createValidationError("As part of the import operation, you cannot modify or add resources or outputs");
    for (const [id, name] of imports) {
      const { Type, DeletionPolicy, Properties } = template.Resources[id] ?? {};
      if (Type !== "AWS::Logs::LogGroup" || DeletionPolicy === undefined || Properties?.LogGroupName !== name)
        throw createValidationError(`Resource ${id} must have a DeletionPolicy and the name of an existing log group`);
    }
    return imports;
  };
  /** Adds existing log groups to a stack. */
  const importLogGroups = (stack: Stack, wanted: WantedStack, imports: Map<string, string>) => {
    const missing = [...imports.values()].find((name) => !services.logs.groups.has(name));
    if (missing !== undefined) {
      recordEvent(stack, "IMPORT_ROLLBACK_COMPLETE", `${missing} does not exist`);
      return;
    }
    for (const [id, physical] of imports) {
      const declared = wanted.template.Resources[id];
      const resource: CreatedResource = {
        id,
        type: declared?.Type ?? "",
        properties: declared?.Properties ?? {},
        physical,
        attributes: { Arn: `arn:aws:logs:${region}:${account}:log-group:${physical}:*` },
        deletion: declared?.DeletionPolicy,
        status: "",
        replacement: declared?.UpdateReplacePolicy,
        updated: new Date(),
      };
      stack.resources.set(id, resource);
      recordEvent(stack, "IMPORT_COMPLETE", undefined, resource);
    }
    Object.assign(stack, { deployed: wanted, updated: new Date() });
    recordEvent(stack, "IMPORT_COMPLETE");
  };
  const startChange = (stack: Stack, wanted: WantedStack, verb: "CREATE" | "UPDATE") => {
    recordEvent(stack, `${verb}_IN_PROGRESS`, "User Initiated");
    startWork(stack, () => apply(stack, wanted, verb));
  };

  const actions: Record<string, (form: Form) => object | Promise<object>> = {
    CreateStack: async (form) => {
      const name = form.get("StackName") ?? "";
      const wanted = await readWantedStack(form);
      if (findByName(name)) throw new AwsError(400, "AlreadyExistsException", `Stack [${name}] already exists`);
      const stack = createStack(name);
      startChange(stack, wanted, "CREATE");
      return { StackId: stack.id };
    },
    UpdateStack: async (form) => {
      const stack = getStack(form);
      const wanted = await readWantedStack(form);
      requireUpdatable(stack);
      if (hasTemplate(stack.deployed, wanted)) throw createValidationError("No updates are to be performed.");
      startChange(stack, wanted, "UPDATE");
      return { StackId: stack.id };
    },
    CreateChangeSet: async (form) => {
      const name = form.get("StackName") ?? "";
      const isNew = form.get("ChangeSetType") === "CREATE";
      const before = findByName(name);
      if (!isNew && !before) throw createValidationError(`Stack [${name}] does not exist`);
      const wanted = await readWantedStack(form);
      if (isNew && before && before.status !== "REVIEW_IN_PROGRESS")
        throw createValidationError(`Stack [${name}] already exists and cannot be created again with the changeSet.`);
      if (!isNew && before) requireUpdatable(before);
      const stack = before ?? createStack(name);
      if (!before) recordEvent(stack, "REVIEW_IN_PROGRESS", "User Initiated");
      const setName = form.get("ChangeSetName") ?? "";
      if (stack.changeSets.has(setName))
        throw new AwsError(400, "AlreadyExistsException", `ChangeSet ${setName} cannot be created: it exists already`);
      const id = `arn:aws:cloudformation:${region}:${account}:changeSet/${setName}/${randomUUID()}`;
      stack.changeSets.set(setName, {
        id,
        name: setName,
        wanted,
        changes: listChanges(stack.deployed?.template, wanted.template),
        created: new Date(),
        imports: form.get("ChangeSetType") === "IMPORT" ? readImports(form, stack, wanted.template) : undefined,
        failure: hasTemplate(stack.deployed, wanted)
          ? "The submitted information didn't contain changes. Submit different information to create a change set."
          : undefined,
      });
      return { Id: id, StackId: stack.id };
    },
    DescribeChangeSet: (form) => {
      const { stack, changeSet } = getChangeSet(form);
      return {
        ChangeSetName: changeSet.name,
        ChangeSetId: changeSet.id,
        StackId: stack.id,
        StackName: stack.name,
        CreationTime: changeSet.created,
        ExecutionStatus: changeSet.failure ? "UNAVAILABLE" : "AVAILABLE",
        Status: changeSet.failure ? "FAILED" : "CREATE_COMPLETE",
        StatusReason: changeSet.failure,
        Changes: changeSet.changes.map((ResourceChange) => ({ Type: "Resource", ResourceChange })),
      };
    },
    DeleteChangeSet: (form) => {
      const [stack, changeSet] = findChangeSet(form);
      if (!stack) throw createValidationError(`Stack [${form.get("StackName")}] does not exist`);
      if (changeSet) stack.changeSets.delete(changeSet.name);
      return {};
    },
    ExecuteChangeSet: (form) => {
      const { stack, changeSet } = getChangeSet(form);
      const sentence = `ChangeSet [${changeSet.id}] cannot be executed in its current status`;
      if (changeSet.failure) throw new AwsError(400, "InvalidChangeSetStatus", sentence);
      const isNew = stack.status === "REVIEW_IN_PROGRESS";
      if (!isNew) requireUpdatable(stack);
      stack.changeSets.clear();
      if (changeSet.imports !== undefined) {
        recordEvent(stack, "IMPORT_IN_PROGRESS", "User Initiated");
        startWork(stack, async () => importLogGroups(stack, changeSet.wanted, changeSet.imports ?? new Map()));
        return {};
      }
      startChange(stack, changeSet.wanted, isNew ? "CREATE" : "UPDATE");
      return {};
    },
    DeleteStack: (form) => {
      const stack = findByName(form.get("StackName") ?? "");
      if (!stack || stack.status === "DELETE_COMPLETE" || stack.status === "DELETE_IN_PROGRESS") return {};
      if (/_IN_PROGRESS$/.test(stack.status) && stack.status !== "REVIEW_IN_PROGRESS")
        throw createValidationError(`Stack [${stack.name}] cannot be deleted while in status ${stack.status}`);
      recordEvent(stack, "DELETE_IN_PROGRESS", "User Initiated");
      startWork(stack, () => deleteResources(stack));
      return {};
    },
    DescribeStacks: (form) => {
      const described = form.has("StackName")
        ? [getStack(form)]
        : [...stacks.values()].filter(({ status }) => status !== "DELETE_COMPLETE");
      return { Stacks: described.map(describeStack) };
    },
    DescribeStackEvents: (form) => {
      const name = form.get("StackName") ?? "";
      const stack = findByName(name);
      if (!stack) throw createValidationError(`Stack [${name}] does not exist`);
      const [StackEvents, NextToken] = selectPage(stack.events, form);
      return { StackEvents, NextToken };
    },
    DescribeStackResource: (form) => {
      const id = form.get("LogicalResourceId") ?? "";
      const stack = findByName(form.get("StackName") ?? "");
      if (!stack) throw createValidationError(`Stack '${form.get("StackName")}' does not exist`);
      const resource = stack.resources.get(id);
      if (!resource) throw createValidationError(`Resource ${id} does not exist for stack ${stack.name}`);
      return { StackResourceDetail: describeResource(stack, resource) };
    },
    ListStackResources: (form) => {
      const stack = getStack(form);
      const [page, NextToken] = selectPage([...stack.resources.values()], form);
      const StackResourceSummaries = page.map((resource) => {
        const { StackId: _, StackName: __, ...rest } = describeResource(stack, resource);
        return rest;
      });
      return { StackResourceSummaries, NextToken };
    },
    GetTemplate: (form) => {
      const { deployed, name } = getStack(form);
      if (!deployed) throw createValidationError(`Template for stack ${name} does not exist`);
      return { TemplateBody: deployed.text, StagesAvailable: ["Original", "Processed"] };
    },
    ValidateTemplate: async (form) => {
      const { Description } = readTemplate(await readTemplateText(form));
      return { Description };
    },
  };

  return {
    stacks,
    retained,
    stack: findByName,
    waitUntilIdle: async () => {
      while (work.size > 0) await Promise.all(work);
    },
    identify: (request) => {
      const form = parseForm(request);
      const [name = ""] = (form.get("StackName") ?? "").replace(/^arn:.*:stack\//, "").split("/");
      const imported = [...form].filter(([key]) => /^ResourcesToImport\..*\.ResourceType$/.test(key));
      const types = imported.map(([, type]) => type);
      return {
        action: `cloudformation:${form.get("Action")}`,
        name,
        ...(types.length > 0 && { context: { "cloudformation:ImportResourceTypes": types } }),
      };
    },
    answer: async (request) => {
      const form = parseForm(request);
      const action = form.get("Action") ?? "";
      const runAction = actions[action];
      if (!runAction) throw new AwsError(400, "InvalidAction", `the stand-in of CloudFormation knows no ${action}`);
      const answer = { [`${action}Result`]: await runAction(form), ResponseMetadata: { RequestId: randomUUID() } };
      return { status: 200, headers: xmlType, body: toXml(`${action}Response`, answer) };
    },
    refuse: refuseInQuery,
  };
};

const parseForm = ({ body }: AwsRequest): Form => new URLSearchParams(String(body));

const selectPage = <T>(items: T[], form: Form): [T[], string | undefined] => {
  const first = Number(form.get("NextToken") ?? 0);
  const next = first + pageSize;
  return [items.slice(first, next), next < items.length ? String(next) : undefined];
};

const listChanges = (before: Template | undefined, after: Template) => {
  const old = before?.Resources ?? {};
  const ids = new Set([...Object.keys(old), ...Object.keys(after.Resources)]);
  return [...ids].flatMap((LogicalResourceId) => {
    const deployed = old[LogicalResourceId];
    const wanted = after.Resources[LogicalResourceId];
    if (isDeepStrictEqual(deployed, wanted)) return [];
    const actionOnDeployed = wanted === undefined ? "Remove" : "Modify";
    const Action = deployed === undefined ? "Add" : actionOnDeployed;
    return [{ Action, LogicalResourceId, ResourceType: (wanted ?? deployed)?.Type ?? "" }];
  });
};

const describeStack = (stack: Stack) => {
  return {
    StackId: stack.id,
    StackName: stack.name,
    Description: stack.deployed?.template.Description,
    CreationTime: stack.created,
    LastUpdatedTime: stack.updated,
    StackStatus: stack.status,
    StackStatusReason: stack.reason,
    DisableRollback: false,
    Outputs: Object.entries(stack.outputs).map(([OutputKey, { value, description }]) => {
      return { OutputKey, OutputValue: value, Description: description };
    }),
    EnableTerminationProtection: false,
  };
};

const describeResource = (stack: Stack, resource: CreatedResource) => {
  return {
    StackId: stack.id,
    StackName: stack.name,
    LogicalResourceId: resource.id,
    PhysicalResourceId: resource.physical,
    ResourceType: resource.type,
    ResourceStatus: resource.status,
    ResourceStatusReason: resource.reason,
    LastUpdatedTimestamp: resource.updated,
  };
};

const toAwsError = (error: unknown) =>
  error instanceof AwsError
    ? error
    : new AwsError(500, "GeneralServiceException", error instanceof Error ? error.message : String(error));
