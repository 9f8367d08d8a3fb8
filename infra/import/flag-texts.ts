// The texts from which the flags of a kube-apiserver are read: a command line, a systemd unit, a file of environment
// variables, the manifest of a static Pod, or kubeadm's ClusterConfiguration.
import { isMap, toList, toMap } from "#lib/json.ts";
import { Complaint } from "../cli/complaint.ts";
import { truncateText } from "../cli/terminal.ts";
import { parseYamlDocuments, type YamlDocument } from "../cli/yaml-document.ts";

/** A command that was found in a text, for instance in a unit of systemd or in the manifest of a Pod. */
interface FoundCommand {
  words: string[];
  /** True if it is kube-apiserver's command, by its words or, in the manifest of a Pod, by its container's name. */
  isApiServer: boolean;
}

/** Returns the words of kube-apiserver's command in a text, without comments. `where` is the text's name in messages. */
export const readCommandLine = (text: string, where: string): string => {
  if (/\bkind["']?\s*:/.test(text)) return readManifests(text, where);
  return /^[ \t]*ExecStart[ \t]*=/m.test(text) ? readUnit(joinLines(text, " "), where) : joinLines(text, "");
};

/** Removes comment lines. Joins each line that ends in a backslash with the next line. */
const joinLines = (text: string, separator: string): string =>
  text
    .replaceAll("\r\n", "\n")
    .replace(/^[ \t]*#.*\n?/gm, "")
    .replace(/\\+\n/g, separator);

/** Returns a scalar as a text. A map or a list can't be a word of a command. */
const toWord = (value: unknown): string => (typeof value === "object" ? "" : String(value));

const isApiServerWord = (word: string) => /(?<![\w.=-])kube-apiserver(?![\w./-])/.test(word);

/** Returns the words of kube-apiserver's command, or else of the single command, one per line. Throws for several. */
const pickApiServerCommand = (commands: readonly FoundCommand[], where: string): string => {
  const ofApiServer = commands.filter(({ isApiServer }) => isApiServer);
  const [command, second] = ofApiServer.length > 0 ? ofApiServer : commands;
  if (second !== undefined)
    throw new Complaint(
      `${where} has ${commands.length} commands, and ${ofApiServer.length === 0 ? "none" : "more than one"} is of kube-apiserver; leave only the command of one kube-apiserver in it`,
    );
  return (command?.words ?? []).join("\n");
};

/**
 * Returns the command of a systemd unit, and the environment variables that it uses. As in systemd, an empty ExecStart
 * removes those before it. The lines of an environment file may follow the unit's.
 */
const readUnit = (text: string, where: string): string => {
  const variables = new Map<string, string>();
  let commands: string[] = [];
  let environmentFiles: string[] = [];
  for (const line of text.split("\n")) {
    const [, key = "", untrimmed = ""] = /^(\w+)\s*=(.*)$/s.exec(line.trim()) ?? [];
    const value = untrimmed.trim();
    if (key === "ExecStart") commands = value === "" ? [] : [...commands, value];
    else if (key === "EnvironmentFile")
      environmentFiles = value === "" ? [] : [...environmentFiles, value.replace(/^-/, "")];
    else if (key === "Environment")
      for (const [word] of value.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)) {
        const [, name = "", assigned = ""] = /^(\w+)=(.*)$/s.exec(removeQuotes(word)) ?? [];
        variables.set(name, removeQuotes(assigned));
      }
    else variables.set(key, removeQuotes(value));
  }
  const command = pickApiServerCommand(
    commands.map((words) => ({ words: [words], isApiServer: isApiServerWord(words) })),
    where,
  );
  const used = new Set([...command.matchAll(/\$\{?(\w+)/g)].map(([, name = ""]) => name));
  // A variable with flags is a word of its own. In --advertise-address=$ADDRESS, the variable has no flags.
  const words = [...command.matchAll(/(?<![^\s"'])\$\{?(\w+)\}?(?![^\s"'])/g)].map(([, name = ""]) => name);
  const unset = words.find((name) => !variables.has(name));
  if (unset !== undefined && environmentFiles.length > 0)
    throw new Complaint(
      `${where} takes $${truncateText(unset, 64)} from its EnvironmentFile; append the lines of ${truncateText(environmentFiles.join(" and "), 256)} to the unit, and ${truncateText(unset, 64)}= if they don't set it`,
    );
  return [command, ...[...used].map((name) => variables.get(name) ?? "")].join("\n");
};

const removeQuotes = (word: string): string => word.replace(/^(["'])(.*)\1$/s, "$2");

/** Returns the words of kube-apiserver's command in manifests, one per line. */
const readManifests = (text: string, where: string): string => {
  const documents = parseYamlDocuments(text, where);
  const commandWords = pickApiServerCommand(documents.flatMap(findCommands), where);
  if (commandWords !== "") return commandWords;
  const kinds = documents.map(({ value }) => truncateText(toWord(toMap(value).kind), 64)).join(", ");
  throw new Complaint(
    `${where} is a manifest of kind ${kinds} without flags: neither its containers have a command, nor is it kubeadm's ClusterConfiguration`,
  );
};

/**
 * Returns the commands of a manifest: those of a Pod's containers, or the one that kubeadm makes from a
 * ClusterConfiguration, which may be in kubeadm's ConfigMap.
 */
const findCommands = (document: YamlDocument): FoundCommand[] => {
  const { kind, spec, data } = toMap(document.value);
  const { ClusterConfiguration: embedded } = toMap(data);
  if (kind === "ClusterConfiguration") return [{ words: listKubeadmFlags(document), isApiServer: true }];
  if (kind === "ConfigMap" && typeof embedded === "string")
    return parseYamlDocuments(embedded, `${document.name} data.ClusterConfiguration`).map((configuration) => {
      return { words: listKubeadmFlags(configuration), isApiServer: true };
    });
  const { containers, template } = toMap(spec);
  return toList(containers ?? toMap(toMap(template).spec).containers).flatMap((container) => {
    const { name, command, args } = toMap(container);
    const words = [...toList(command), ...toList(args)].map(toWord);
    return words.length === 0 ? [] : [{ words, isApiServer: [toWord(name), ...words].some(isApiServerWord) }];
  });
};

/** Returns the admission flags that kubeadm gives kube-apiserver: `extraArgs`, and its default for a missing flag. */
const listKubeadmFlags = ({ value, complain }: YamlDocument): string[] => {
  const { apiVersion, apiServer } = toMap(value);
  const { extraArgs = [] } = toMap(apiServer);
  // All versions since v1beta1 have the flags in `apiServer`. The message names only those that kubeadm still reads.
  if (!/^kubeadm\.k8s\.io\/v\d+(beta\d+)?$/.test(toWord(apiVersion))) {
    const sentence = `must be kubeadm.k8s.io/v1beta3 or v1beta4, not "${truncateText(toWord(apiVersion), 64)}"`;
    complain([{ path: ["apiVersion"], sentence }]);
  }
  if (extraArgs !== null && !isMap(extraArgs) && !Array.isArray(extraArgs))
    complain([{ path: ["apiServer", "extraArgs"], sentence: "must be a list of maps with name and value" }]);
  const flags = isMap(extraArgs)
    ? Object.entries(extraArgs)
    : toList(extraArgs).map((argument) => [toMap(argument).name, toMap(argument).value]);
  const defaults = flags.some(([name]) => name === "enable-admission-plugins")
    ? []
    : ["--enable-admission-plugins=NodeRestriction"];
  return [...defaults, ...flags.map(([name, flagValue]) => `--${toWord(name)}=${toWord(flagValue)}`)];
};
