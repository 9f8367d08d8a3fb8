import { hash } from "node:crypto";
import type { PackedModule } from "../kubernetes/module-files.ts";
import { modulePackageName } from "./package-manifest.ts";

/** The members of a package.json that name the packages which npm installs with the package. */
interface Dependencies {
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
  peerDependenciesMeta?: Record<string, { optional?: boolean }>;
}

/** The `packages` of package-lock.json, by paths such as `node_modules/a/node_modules/b`. */
type LockedPackages = Record<string, Dependencies & { version: string; license?: string; integrity?: string }>;

/** What the software bill of materials (SBOM) is made of. */
export interface SbomSource {
  /** The package.json of the packed package. */
  manifest: Dependencies & { name: string; version: string; description: string; license: string };
  locked: LockedPackages;
  /** The paths of the packages whose code is bundled into the packed package. */
  bundled: readonly string[];
  /** The WebAssembly module of Kubernetes' code. npm installs it with the packed package, from a package of its own. */
  module: PackedModule;
  /** The day of the release, such as 2026-11-23. */
  date: string;
}

/**
 * Returns a software bill of materials (CycloneDX 1.6). It lists the bundled packages, the packages that npm installs
 * with the package, and the Go modules that are compiled into the WebAssembly file of Kubernetes' code (`module`). The
 * versions of npm packages are those of package-lock.json. Equal sources give an equal document.
 */
export const buildSbom = ({ manifest, locked, bundled, module, date }: SbomSource): object => {
  const installed = collectInstalled(manifest, locked, listInstalledNames);
  const required = collectInstalled(manifest, locked, listRequiredNames);
  const allPaths = new Set([...bundled, ...installed]);
  const listDependencies = (path: string, source?: Dependencies) => [
    ...new Set(findAll(locked, path, listInstalledNames(source)).filter((found) => allPaths.has(found))),
  ];
  const toRefs = (paths: string[]) => [...new Set(paths.map((path) => getPackageUrl(locked, path)))].sort();

  // A version of a package that is installed at several paths is one component.
  const pathsByUrl = [...Map.groupBy([...allPaths].sort(), (path) => getPackageUrl(locked, path))];
  // package.json doesn't name bundled packages. Postern itself uses those that no other bundled package depends on.
  const dependedOn = new Set([...bundled].flatMap((path) => listDependencies(path, locked[path])));
  const bundledDirectly = bundled.filter((path) => !dependedOn.has(path));
  const direct = [...listDependencies("", manifest), ...bundledDirectly];
  const { name, version, description, license } = manifest;
  const ref = `pkg:npm/${name}@${version}`;
  const { ref: moduleRef, components, dependencies } = describeModule(module, license);
  const content = {
    metadata: {
      timestamp: `${date}T00:00:00Z`,
      component: { type: "application", "bom-ref": ref, name, version, description, purl: ref, ...toLicenses(license) },
    },
    components: [
      ...pathsByUrl.map(([purl, paths]) => ({
        ...describePackage(locked, purl, paths[0] ?? ""),
        scope: paths.some((path) => bundled.includes(path) || required.has(path)) ? "required" : "optional",
        // CycloneDX defines this name of a property for npm packages.
        properties: paths.some((path) => bundled.includes(path))
          ? [{ name: "cdx:npm:package:bundled", value: "true" }]
          : [],
      })),
      ...components,
    ],
    dependencies: [
      { ref, dependsOn: [...toRefs(direct), moduleRef].sort() },
      ...pathsByUrl.map(([purl, paths]) => ({
        ref: purl,
        dependsOn: toRefs(paths.flatMap((path) => listDependencies(path, locked[path]))),
      })),
      ...dependencies,
    ],
  };
  return {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    serialNumber: `urn:uuid:${computeUuid(JSON.stringify(content))}`,
    version: 1,
    ...content,
  };
};

/** Returns the names of the packages without which a package doesn't work. npm doesn't install optional peers. */
const listRequiredNames = ({ dependencies, peerDependencies, peerDependenciesMeta }: Dependencies = {}): string[] => [
  ...Object.keys(dependencies ?? {}),
  ...Object.keys(peerDependencies ?? {}).filter((name) => !peerDependenciesMeta?.[name]?.optional),
];

/** Returns the names of the packages that npm installs with a package. */
const listInstalledNames = (source: Dependencies = {}): string[] => [
  ...listRequiredNames(source),
  ...Object.keys(source.optionalDependencies ?? {}),
];

/** Returns the paths of the packages that a package depends on, directly or indirectly, if `listNames` lists them. */
const collectInstalled = (
  manifest: Dependencies,
  locked: LockedPackages,
  listNames: (source?: Dependencies) => string[],
): Set<string> => {
  const found = new Set(findAll(locked, "", listNames(manifest)));
  // The loop also visits the paths that are added while it runs.
  for (const path of found) for (const next of findAll(locked, path, listNames(locked[path]))) found.add(next);
  return found;
};

/** Returns the paths where a package finds other packages. Node.js searches each node_modules from `from` upwards. */
const findAll = (locked: LockedPackages, from: string, names: readonly string[]): string[] =>
  names.flatMap((name) => {
    for (let folder = from; ; folder = folder.slice(0, Math.max(folder.lastIndexOf("node_modules/") - 1, 0))) {
      const path = `${folder}${folder && "/"}node_modules/${name}`;
      if (locked[path] !== undefined) return [path];
      if (folder === "") return [];
    }
  });

const getPackageName = (path: string): string => path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);

const getPackageUrl = (locked: LockedPackages, path: string): string =>
  `pkg:npm/${getPackageName(path).replace("@", "%40")}@${locked[path]?.version}`;

/** Returns a package's entry in the SBOM; `path` is its path in package-lock.json. */
const describePackage = (locked: LockedPackages, purl: string, path: string) => {
  const { version, license, integrity = "" } = locked[path] ?? {};
  const [, digest] = /^sha512-(.*)$/.exec(integrity) ?? [];
  return {
    type: "library",
    "bom-ref": purl,
    name: getPackageName(path),
    version,
    purl,
    ...(digest !== undefined && {
      hashes: [{ alg: "SHA-512", content: Buffer.from(digest, "base64").toString("hex") }],
    }),
    ...toLicenses(license),
  };
};

/** Describes the package with Kubernetes' handlers, and the Go modules that are compiled into it. */
const describeModule = ({ manifest: { go, modules }, version }: PackedModule, license: string) => {
  const ref = `pkg:npm/${modulePackageName}@${version}`;
  const describe = (name: string, version: string, purl: string) => {
    return { type: "library", "bom-ref": purl, name, version, purl, scope: "required", properties: [] };
  };
  const goModules = Object.entries({ std: go.replace("go", ""), ...modules }).map(([name, version]) =>
    describe(name, version, `pkg:golang/${name}@${version.replaceAll("+", "%2B")}`),
  );
  return {
    ref,
    components: [{ ...describe(modulePackageName, version, ref), ...toLicenses(license) }, ...goModules],
    dependencies: [
      { ref, dependsOn: goModules.map(({ purl }) => purl) },
      ...goModules.map(({ purl }) => ({ ref: purl, dependsOn: [] })),
    ],
  };
};

/** Returns the member `licenses` for an SPDX identifier or expression, such as `MIT` or `(MIT OR Apache-2.0)`. */
const toLicenses = (license: string | undefined) => {
  if (license === undefined) return {};
  return { licenses: [/ /.test(license) ? { expression: license } : { license: { id: license } }] };
};

/** Returns a UUID of version 8 (made from any data), with the digits of a text's digest. */
const computeUuid = (text: string): string => {
  const digest = hash("sha256", text);
  return digest.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, "$1-$2-8$3-8$4-$5");
};
