import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/** A change of one file: each pattern is found once or more, and replaced. */
interface FileEdit {
  file: string;
  replace: readonly (readonly [pattern: RegExp, replacement: string])[];
}

const journalWithoutSockets = `//go:build !windows

package journal

import "errors"

func Enabled() bool { return false }

func Send(string, Priority, map[string]string) error { return errors.New("there is no journal") }

func StderrIsJournalStream() (bool, error) { return false, nil }
`;

/** Imports what the expressions of `formatIsOlder` need. */
const importVersions = [
  /^import \($/m,
  'import (\n\temulated "k8s.io/apimachinery/pkg/util/version"\n\t"k8s.io/apiserver/pkg/util/compatibility"',
] as const;
/** Returns an expression of Go that reports whether the module emulates a minor before this one. */
const formatIsOlder = (minor: string) =>
  `compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor("kube").EmulationVersion().LessThan(emulated.MustParse("${minor}"))`;

/** What upstream's modules need to compile for WebAssembly, to be small and fast there, and to emulate older minors. */
const moduleEdits: Readonly<Record<string, readonly FileEdit[]>> = {
  // WebAssembly has no locks for files, and etcd is linked though no file is opened.
  "go.etcd.io/etcd/client/pkg/v3": [
    {
      file: "fileutil/lock_flock.go",
      replace: [
        [/syscall\.Flock\(int\(f\.Fd\(\)\), [^)]*\)/g, "error(syscall.ENOSYS)"],
        [/syscall\.EWOULDBLOCK/, "syscall.EAGAIN"],
      ],
    },
  ],
  // The log of systemd needs sockets.
  "github.com/coreos/go-systemd/v22": [
    { file: "journal/journal_unix.go", replace: [[/[\s\S]*/, journalWithoutSockets]] },
  ],
  // An object that is created gets no managedFields: they take five sixths of the time, and no rule reads them.
  "k8s.io/apimachinery": [
    {
      file: "pkg/util/managedfields/internal/fieldmanager.go",
      replace: [[/DefaultTrackOnCreateProbability float32 = 1/, "DefaultTrackOnCreateProbability float32 = 0"]],
    },
  ],
  // What older minors don't do, though no feature gate says so. Before 1.37, they don't validate the reference of an image
  // volume in a Pod template. Before 1.35, they keep the tolerations and the distinctAttribute of a device, though the gates
  // of these fields are off. Before 1.34, they validate neither the Pod template of a StatefulSet nor the apiVersion of what a
  // HorizontalPodAutoscaler scales.
  "k8s.io/kubernetes": [
    {
      file: "pkg/apis/core/validation/validation.go",
      replace: [
        importVersions,
        [/!opts\.AllowEmptyImageVolumeReference && /, `$&(opts.ResourceIsPod || !${formatIsOlder("1.37")}) && `],
      ],
    },
    {
      file: "pkg/api/resourceclaimspec/util.go",
      replace: [
        importVersions,
        [/\w+\.DefaultFeatureGate\.Enabled\(features\.DRADeviceTaints\) \|\|/, `${formatIsOlder("1.35")} ||\n$&`],
        [/new\.Devices\.Constraints\[i\]\.DistinctAttribute = nil/, `if !${formatIsOlder("1.35")} { $& }`],
      ],
    },
    {
      file: "pkg/registry/apps/statefulset/strategy.go",
      replace: [
        importVersions,
        [/AllowInvalidServiceName: /g, `SkipValidatePodTemplateSpec: ${formatIsOlder("1.34")},\n$&`],
      ],
    },
    {
      file: "pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go",
      replace: [importVersions, [/AllowInvalidAPIVersion: false/g, `AllowInvalidAPIVersion: ${formatIsOlder("1.34")}`]],
    },
  ],
};

/**
 * Templates of texts call methods by names that only the template knows, so Go would link every method of every type.
 * No template is filled here.
 */
const templateEdit: FileEdit = {
  file: "src/text/template/exec.go",
  replace: [[/ptr\.MethodByName\(fieldName\)/, "(reflect.Value{})"]],
};

/** Runs go in a folder and returns its output. */
export type RunGo = (cwd: string, ...args: string[]) => Promise<string>;

/**
 * Copies the Go files of a module to `folder/source`, with the modules of others that are edited, and returns the path of
 * the overlay that `go build` takes.
 */
export const writeModuleSources = async (sources: string, folder: string, runGo: RunGo): Promise<string> => {
  const copy = join(folder, "source");
  await cp(sources, copy, { recursive: true });
  const go = (...args: string[]) => runGo(copy, ...args);
  for (const [module, edits] of Object.entries(moduleEdits)) {
    await go("mod", "download", module);
    const edited = join("edited", module);
    const from = (await go("list", "-m", "-f", "{{.Dir}}", module)).trim();
    await cp(from, join(copy, edited), { recursive: true });
    for (const edit of edits) await writeEdited(edit, from, join(copy, edited));
    await go("mod", "edit", "-replace", `${module}=./${edited}`);
  }
  const root = (await go("env", "GOROOT")).trim();
  await writeEdited(templateEdit, root, join(folder, "go"));
  const overlay = join(folder, "overlay.json");
  const files = { [join(root, templateEdit.file)]: join(folder, "go", templateEdit.file) };
  await writeFile(overlay, JSON.stringify({ Replace: files }));
  return overlay;
};

const writeEdited = async ({ file, replace }: FileEdit, from: string, to: string): Promise<void> => {
  let text = await readFile(join(from, file), "utf8");
  for (const [pattern, replacement] of replace) {
    if (text.search(pattern) < 0) throw new Error(`${file} has no ${pattern.source}: upstream changed it`);
    text = text.replace(pattern, replacement);
  }
  // The files of the module cache, and their copies, can't be written.
  await rm(join(to, file), { force: true });
  await mkdir(dirname(join(to, file)), { recursive: true });
  await writeFile(join(to, file), text);
};
