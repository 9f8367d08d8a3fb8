// Reads the flags of a kube-apiserver as users have them: a command line, a systemd unit, a file of environment
// variables, the manifest of a static Pod, or kubeadm's ClusterConfiguration.
import { isMap, toList, toMap } from "#lib/json.ts";
import { Complaint } from "../cli/complaint.ts";
import { truncateText } from "../cli/terminal.ts";
import { parseYamlDocument } from "../cli/yaml-document.ts";
import { findPluginNameFault, renamePlugin } from "./plugins.ts";

/** The flags of a kube-apiserver that say what its admission plugins do. */
export interface AdmissionFlags {
  /** The plugins of --admission-control by their present names: no other plugin is on. Undefined without this flag. */
  exact?: string[];
  /** The plugins of --enable-admission-plugins, and of --disable-admission-plugins. */
  enabled: string[];
  disabled: string[];
  gates: Map<string, boolean>;
  /** The file of --admission-control-config-file. */
  configFile?: string;
  /** The seconds of --default-not-ready-toleration-seconds, and of --default-unreachable-toleration-seconds. */
  notReadySeconds?: number;
  unreachableSeconds?: number;
}

const [exact, enable, disable] = [
  "admission-control",
  "enable-admission-plugins",
  "disable-admission-plugins",
] as const;
const [gates, configFile] = ["feature-gates", "admission-control-config-file"] as const;
const [notReady, unreachable] = [
  "default-not-ready-toleration-seconds",
  "default-unreachable-toleration-seconds",
] as const;
const names = [exact, enable, disable, gates, configFile, notReady, unreachable];

/**
 * Finds the flags of `names` in any text: their names are so special that the syntax around them doesn't matter. A value
 * stands after "=" or a space, in quotes or up to a space or the quote around the whole word. A quote that isn't closed
 * becomes the value, which no flag accepts. kube-apiserver takes "_" for "-".
 */
const flagPattern = new RegExp(
  `(?<![\\w.-])--(${names.join("|").replaceAll("-", "[-_]")})["',]*(=|\\s+)("[^"]*"|'[^']*'|[^\\s"']+|["']?)(?=(.?))`,
  "gs",
);

/** Parses the flags of a kube-apiserver; `where` names the text in messages. */
export const parseAdmissionFlags = (text: string, where: string): AdmissionFlags => {
  const line = /\bkind["']?\s*:/.test(text) ? readManifest(text, where) : joinLines(text);
  if (!/(?<![\w.-])--\w/.test(line))
    throw new Complaint(`${where} has no flags of kube-apiserver, such as --${enable}`);
  const found = new Map<string, string[]>();
  for (const [, name = "", separator, value = "", next = ""] of line.matchAll(flagPattern)) {
    const key = name.replaceAll("_", "-");
    if (separator === "=" && /^["']./s.test(value) && /[^\s"'\\]/.test(next))
      throw new Complaint(`--${key} goes on after ${truncateText(value, 64)}; write its value in one piece`);
    const values = found.get(key) ?? [];
    found.set(key, values);
    values.push(value.replace(/^(["'])(.*)\1$/s, "$2"));
  }
  const readList = (name: string) => found.get(name)?.flatMap((list) => splitList(list, name));
  const readPlugins = (name: string) =>
    readList(name)?.map((plugin) => {
      const fault = findPluginNameFault(plugin);
      if (fault !== undefined) throw new Complaint(`--${name} names ${fault}`);
      return renamePlugin(plugin);
    });
  const readSeconds = (name: string) => {
    const value = found.get(name)?.at(-1);
    if (value === undefined || /^-?\d{1,15}$/.test(value)) return value === undefined ? undefined : Number(value);
    throw new Complaint(`--${name} must be a whole number of seconds, not "${truncateText(value, 64)}"`);
  };
  const [only, on, off] = [readPlugins(exact), readPlugins(enable), readPlugins(disable)];
  if (only && (on || off)) throw new Complaint(`--${exact} can't be combined with --${enable} and --${disable}`);
  const conflicting = on?.find((plugin) => off?.includes(plugin));
  if (conflicting !== undefined) throw new Complaint(`--${enable} and --${disable} both name ${conflicting}`);
  const [file, notReadySeconds, unreachableSeconds] = [
    found.get(configFile)?.at(-1),
    readSeconds(notReady),
    readSeconds(unreachable),
  ];
  return {
    ...(only && { exact: only }),
    enabled: on ?? [],
    disabled: off ?? [],
    gates: new Map((readList(gates) ?? []).map(parseGate)),
    ...(file !== undefined && { configFile: file }),
    ...(notReadySeconds !== undefined && { notReadySeconds }),
    ...(unreachableSeconds !== undefined && { unreachableSeconds }),
  };
};

/** Removes comments, and joins the lines that end in a backslash. */
const joinLines = (text: string): string =>
  text
    .replaceAll("\r\n", "\n")
    .replace(/^[ \t]*#.*\n?/gm, "")
    .replace(/\\+\n/g, "");

const splitList = (list: string, name: string): string[] => {
  const parts = list.trim() === "" ? [] : list.split(",").map((part) => part.trim());
  if (parts.includes(""))
    throw new Complaint(`--${name} has an empty name in "${truncateText(list, 64)}"; a list has no spaces`);
  return parts;
};

const parseGate = (text: string): [string, boolean] => {
  const [, gate = "", isOn, isOff] = /^(\w+)=(?:(1|t|true)|(0|f|false))$/i.exec(text) ?? [];
  if (isOn === undefined && isOff === undefined)
    throw new Complaint(`--${gates} must have gates such as GenericWorkload=true, not "${truncateText(text, 64)}"`);
  return [gate, isOn !== undefined];
};

/** Returns the words of the commands in a manifest of kube-apiserver's Pod, or the flags in one of kubeadm, as lines. */
const readManifest = (text: string, where: string): string => {
  const { kind, spec, apiServer } = toMap(parseYamlDocument(text, where).value);
  const { containers, template } = toMap(spec);
  const words = toList(containers ?? toMap(toMap(template).spec).containers).flatMap((container) => {
    const { command, args } = toMap(container);
    return [...toList(command), ...toList(args)];
  });
  const { extraArgs } = toMap(apiServer);
  const extra = isMap(extraArgs)
    ? Object.entries(extraArgs)
    : toList(extraArgs).map((argument) => [toMap(argument).name, toMap(argument).value]);
  const all = [...words, ...extra.map(([name, value]) => `--${name}=${value}`)];
  if (all.length === 0)
    throw new Complaint(
      `${where} is a manifest of kind ${kind} without flags: neither its containers have a command, nor has apiServer extraArgs`,
    );
  return all.map(String).join("\n");
};
