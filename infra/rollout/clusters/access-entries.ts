import { setTimeout as wait } from "node:timers/promises";
import { toList, toMap } from "#lib/json.ts";
import { formatStageIdentity, type StageIdentity } from "../../aws/identity.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { toLogicalId } from "../../catalogue/rule-names.ts";
import { Complaint } from "../../cli/complaint.ts";
import { runInParallel } from "../../cli/progress.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import { type EksAnswer, openEks } from "../../clusters/eks.ts";
import type { ClusterConnectConfig } from "../../config/config.ts";
import { buildKubernetesGroupName } from "../../webhooks/rbac.ts";
import { type DeploymentTargets, getClusterConfig } from "../targets.ts";
import { webhookConfigurationName } from "./cluster-manifests.ts";

// This file manages access entries of EKS clusters. Each access entry puts the IAM role of one function into the
// Kubernetes group that the function's ClusterRoleBinding names.

/** The tag of access entries that a stage has created. Its value is the stage's identity. Other access entries stay. */
const ownerTag = "postern";
/** The number of access entries that are read or written in parallel. */
const atOnce = 5;

interface AccessEntry {
  principal: string;
  groups: string[];
  /** True if this stage has created the access entry. */
  isOwn: boolean;
}

interface WantedAccessEntry {
  rule: string;
  group: string;
  /** The role of the rule's function; undefined until the stack has it. */
  principal: string | undefined;
}

/** What a deployment changes in the access entries of one cluster. */
interface AccessEntryChanges {
  missing: WantedAccessEntry[];
  /** Access entries of the stage with wrong groups. They are deleted and created again. */
  changed: WantedAccessEntry[];
  obsolete: AccessEntry[];
}

type Targets = Pick<DeploymentTargets, "config" | "write"> & {
  stage: Pick<AwsStage, "readAwsKeys" | "readStageIdentity" | "guard">;
};

/**
 * Describes what a deployment would change in a cluster's access entries. Changes nothing. With `isDeployment`, throws
 * if the caller has no right to create them.
 */
export const describeAccessEntryChanges = async (
  targets: Targets,
  name: string,
  manifests: DeployedObject[],
  { outputs, isDeployment = false }: { outputs: Record<string, string>; isDeployment?: boolean },
): Promise<string[]> => {
  const entries = await openAccessEntries(targets, name);
  if (entries === undefined) return [];
  const { missing, changed, obsolete } = await entries.compare(listWantedEntries(manifests, outputs));
  if (isDeployment && missing.length + changed.length > 0) await entries.requireCreateRight();
  return [
    ...missing.map(({ rule }) => `EKS access entry of ${rule} is missing`),
    ...changed.map(({ rule, group }) => `EKS access entry of ${rule} is not in the group ${group} alone`),
    // With --write, the cluster calls its old functions until the user applies the files: their access entries stay.
    ...selectDeletable(obsolete, targets, outputs).map(
      ({ groups }) => `EKS access entry in the group ${groups.join(", ")} should not be there`,
    ),
  ];
};

/** Creates missing access entries, and replaces those with wrong groups. Returns how many it created. */
export const createAccessEntries = async (
  targets: Targets,
  name: string,
  manifests: DeployedObject[],
  outputs: Record<string, string>,
): Promise<number> => {
  const wanted = listWantedEntries(manifests, outputs);
  const entries = wanted.length === 0 ? undefined : await openAccessEntries(targets, name);
  if (entries === undefined) return 0;
  const { missing, changed } = await entries.compare(wanted);
  await runInParallel(atOnce, changed, async ({ principal = "" }) => entries.remove(principal));
  const created = [...missing, ...changed];
  await runInParallel(atOnce, created, async (entry) => entries.create(entry));
  return created.length;
};

/** Deletes the stage's access entries in a cluster that no object in `manifests` needs. Returns how many it deleted. */
export const deleteAccessEntries = async (
  targets: Targets,
  cluster: string,
  manifests: DeployedObject[] = [],
  outputs: Record<string, string> = {},
): Promise<number> => {
  const entries = await openAccessEntries(targets, cluster);
  if (entries === undefined) return 0;
  const { obsolete } = await entries.compare(listWantedEntries(manifests, outputs));
  // With --write, the cluster calls its old functions until the user applies the files: their access entries stay.
  const deletable = selectDeletable(obsolete, targets, outputs);
  await runInParallel(atOnce, deletable, async ({ principal }) => entries.remove(principal));
  return deletable.length;
};

/**
 * Returns the obsolete access entries that may be deleted now. With --write, the cluster has its old webhook entries
 * until the user applies the files. The functions that they call need their access entries until then, so the access
 * entries of roles in the stack are kept.
 */
const selectDeletable = (obsolete: AccessEntry[], { write }: Targets, outputs: Record<string, string>) => {
  const roles = write === undefined ? [] : Object.values(outputs);
  return obsolete.filter(({ principal }) => !roles.includes(principal));
};

/** Throws if the stage may not create access entries in a cluster. Changes nothing. */
export const requireAccessEntryRights = async (targets: Targets, name: string): Promise<void> => {
  const entries = await openAccessEntries(targets, name);
  // This throws if the stage may not list or describe access entries.
  await entries?.compare([]);
  await entries?.requireCreateRight();
};

/** Returns the Kubernetes groups that ClusterRoleBindings give rights to: one for each function that reads it. */
export const listFunctionGroups = (manifests: DeployedObject[] = []): string[] =>
  manifests.filter(isFunctionBinding).map(({ metadata: { name } }) => name);

/** What the names of functions' Kubernetes groups have before the rule: "postern:". */
const groupPrefix = buildKubernetesGroupName(webhookConfigurationName, "");

const isFunctionBinding = ({ kind, metadata: { name } }: DeployedObject): boolean =>
  kind === "ClusterRoleBinding" && name.startsWith(groupPrefix);

/** Returns the access entries that a cluster needs: one for each group in its ClusterRoleBindings. */
const listWantedEntries = (manifests: DeployedObject[], outputs: Record<string, string>): WantedAccessEntry[] =>
  listFunctionGroups(manifests).map((group) => {
    const rule = group.slice(groupPrefix.length); // The group is for instance "postern:pods".
    return { rule, group, principal: outputs[`${toLogicalId(rule)}RoleArn`] };
  });

/** Returns functions that compare, create and delete the access entries of a cluster; undefined if it is not on EKS. */
const openAccessEntries = async ({ stage, config }: Targets, name: string) => {
  const { connect } = getClusterConfig({ config }, name);
  if (connect?.eks === undefined) return undefined;
  const { eks } = connect;
  const identity = await stage.readStageIdentity();
  const owner = formatStageIdentity(identity);
  const rolePrefix = buildRolePrefix(identity);
  const call = openEks(connect, stage.readAwsKeys, stage.guard);
  const fail = ({ status, sentence }: EksAnswer, verb: string): never => {
    const remedy = status === 403 ? `\n${describeRemedy(identity, connect, sentence)}` : "";
    throw new Complaint(`cluster ${name}: EKS doesn't ${verb} of ${eks} (${status}): ${sentence}${remedy}`, 1);
  };

  /** Lists the access entries of the stage's roles. The cluster's other access entries are not read. */
  const list = async (): Promise<AccessEntry[]> => {
    const principals: string[] = [];
    for (let nextToken: string | undefined = ""; nextToken !== undefined; ) {
      const query = { maxResults: "100", ...(nextToken !== "" && { nextToken }) };
      const answer = await call({ path: ["access-entries"], query });
      if (answer.status !== 200) fail(answer, "list the access entries");
      principals.push(...toList(answer.content.accessEntries).map(String));
      nextToken = typeof answer.content.nextToken === "string" ? answer.content.nextToken : undefined;
    }
    const rolePrincipals = principals.filter((principal) => principal.startsWith(rolePrefix));
    return (await runInParallel(atOnce, rolePrincipals, describe)).flat();
  };
  const describe = async (principal: string): Promise<AccessEntry[]> => {
    const answer = await call({ path: ["access-entries", principal] });
    if (answer.status === 404) return [];
    if (answer.status !== 200) fail(answer, `describe the access entry of ${principal}`);
    const { kubernetesGroups, tags } = toMap(answer.content.accessEntry);
    return [{ principal, groups: toList(kubernetesGroups).map(String), isOwn: toMap(tags)[ownerTag] === owner }];
  };
  const sendEntry = (principalArn: string, group: string) => {
    const body = { principalArn, type: "STANDARD", kubernetesGroups: [group], tags: { [ownerTag]: owner } };
    return call({ method: "POST", path: ["access-entries"], body });
  };
  return {
    compare: async (wanted: WantedAccessEntry[]): Promise<AccessEntryChanges> => {
      const presentEntries = await list();
      const changes: AccessEntryChanges = { missing: [], changed: [], obsolete: [] };
      for (const entry of wanted) {
        const found = presentEntries.find(({ principal }) => principal === entry.principal);
        if (found === undefined) changes.missing.push(entry);
        else if (!found.groups.includes(entry.group) && !found.isOwn)
          throw new Complaint(
            `cluster ${name}: the access entry of ${found.principal} in ${eks} is not this stage's, because it has no tag ${ownerTag}=${owner}, and it is not in the group ${entry.group}; delete it, or add the group`,
            1,
          );
        else if (found.isOwn && found.groups.join() !== entry.group) changes.changed.push(entry);
      }
      const isWanted = ({ principal }: AccessEntry) => wanted.some((entry) => entry.principal === principal);
      changes.obsolete = presentEntries.filter((entry) => entry.isOwn && !isWanted(entry));
      return changes;
    },

    /**
     * Creates an access entry. Tries again for some time if EKS doesn't know the new role yet. The status 409 means
     * that another command has created the entry already.
     */
    create: async ({ rule, group, principal }: WantedAccessEntry): Promise<void> => {
      if (principal === undefined) throw new Complaint(`the stack has no output with the role of ${rule}`, 3);
      for (const until = Date.now() + roleMilliseconds; ; await wait(1000)) {
        const answer = await sendEntry(principal, group);
        if (answer.status === 409 || answer.status === 200) return;
        if (!isUnknownPrincipal(answer) || Date.now() >= until) fail(answer, `create the access entry of ${principal}`);
      }
    },

    remove: async (principal: string): Promise<void> => {
      const answer = await call({ method: "DELETE", path: ["access-entries", principal] });
      if (answer.status !== 200 && answer.status !== 404) fail(answer, `delete the access entry of ${principal}`);
    },

    /**
     * Throws if the caller may not create access entries. It requests an entry for a role that doesn't exist: EKS
     * checks the right first, and then refuses the role.
     */
    requireCreateRight: async (): Promise<void> => {
      const principal = `${rolePrefix}none`;
      const answer = await sendEntry(principal, buildKubernetesGroupName(webhookConfigurationName, "none"));
      if (answer.status === 403) fail(answer, "create access entries");
      if (answer.status === 200) await call({ method: "DELETE", path: ["access-entries", principal] });
    },
  };
};

/** The milliseconds that EKS may take until it knows a new role. */
const roleMilliseconds = 60_000;
const isUnknownPrincipal = ({ status, sentence }: EksAnswer) => status === 400 && /invalid principal/i.test(sentence);

/** CloudFormation shortens the stack's name to so many characters in the names of roles. */
const stackNameCharactersInRole = 24;

/** Returns the beginning of the ARNs of the stage's roles. */
const buildRolePrefix = ({ partition, account, stage }: StageIdentity): string =>
  `arn:${partition}:iam::${account}:role/${`postern-${stage}`.slice(0, stackNameCharactersInRole)}-`;

/** Returns the command with which an administrator lets the caller manage the stage's access entries in a cluster. */
const describeRemedy = (
  identity: StageIdentity,
  { eks, region, role }: ClusterConnectConfig,
  refusal: string,
): string => {
  const { partition, account, stage } = identity;
  const owner = formatStageIdentity(identity);
  const roleArnPrefix = buildRolePrefix(identity); // for instance "arn:aws:iam::111122223333:role/postern-prod-"
  const [, roleNamePrefix] = roleArnPrefix.split("/");
  // In the role's ARN arn:aws:iam::111122223333:role/deployer, the fifth part is the account.
  const clusterAccount = role?.split(":")[4] ?? account;
  const arn = `arn:${partition}:eks:${region}:${clusterAccount}`;
  const entriesArn = `${arn}:access-entry/${eks}/role/${account}/${roleNamePrefix}*/*`;
  const isOfStage = { StringEquals: { [`aws:ResourceTag/${ownerTag}`]: owner } };
  const isFunctionEntry = {
    StringEquals: { "eks:accessEntryType": "STANDARD", [`aws:RequestTag/${ownerTag}`]: owner },
    ArnLike: { "eks:principalArn": `${roleArnPrefix}*` },
    "ForAllValues:StringLike": { "eks:kubernetesGroups": buildKubernetesGroupName(webhookConfigurationName, "*") },
    Null: { "eks:username": "true" },
  };
  const isTaggedForStage = { StringEquals: { [`aws:RequestTag/${ownerTag}`]: owner } };
  const Statement = [
    { Effect: "Allow", Action: "eks:ListAccessEntries", Resource: `${arn}:cluster/${eks}` },
    { Effect: "Allow", Action: "eks:DescribeAccessEntry", Resource: entriesArn },
    { Effect: "Allow", Action: "eks:CreateAccessEntry", Resource: `${arn}:cluster/${eks}`, Condition: isFunctionEntry },
    { Effect: "Allow", Action: "eks:TagResource", Resource: entriesArn, Condition: isTaggedForStage },
    { Effect: "Allow", Action: "eks:DeleteAccessEntry", Resource: entriesArn, Condition: isOfStage },
  ];
  // The caller, for instance in arn:aws:sts::111122223333:assumed-role/deployer/session: kind "role", name "deployer".
  const [, kind = "role", caller = "ROLE"] = /:(?:assumed-)?(role|user)\/([^/\s]+)/.exec(role ?? refusal) ?? [];
  const document = JSON.stringify({ Version: "2012-10-17", Statement });
  return `an administrator of account ${clusterAccount} must run this first:\naws iam put-${kind}-policy --${kind}-name ${caller} --policy-name postern-${stage}-access-entries --policy-document '${document}'`;
};
