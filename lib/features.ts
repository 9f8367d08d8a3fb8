// The parts of this library that a function's rules need. The build of a function defines these constants, and esbuild
// leaves out the code that is used only under a constant whose value is false. Outside of functions, all are true. They
// are globals, not exports: esbuild selects the code of a bundle before it inlines constants of other modules.
declare global {
  /** Whether a rule changes objects. */
  const POSTERN_MUTATES: boolean;
  /** Whether a rule declares needs: that it reads from clusters, calls services, keeps state and the like. */
  const POSTERN_NEEDS: boolean;
  /** Whether a rule differs between minor versions of Kubernetes. */
  const POSTERN_SINCE: boolean;
  /** Whether a rule has variants. */
  const POSTERN_VARIANTS: boolean;
  /** Whether a rule has `exactIntegers`. */
  const POSTERN_EXACT_INTEGERS: boolean;
  /** Whether the function serves a group of rules. */
  const POSTERN_GROUP: boolean;
  /**
   * Whether any cluster's settings use a rule's needs. Otherwise, the bundle has no code to ask clusters or services.
   */
  const POSTERN_ASKS: boolean;
  /** Whether a rule uses the ledger. */
  const POSTERN_LEDGER: boolean;
  /** Whether any cluster has exemptions with an end date. */
  const POSTERN_EXCEPTIONS: boolean;
  /** Whether a schedule calls the function, for work that no review asks for. */
  const POSTERN_RECONCILES: boolean;
  /** Whether reviews are recorded. */
  const POSTERN_RECORDED: boolean;
  /** Whether tests of admission policies can collect details of evaluations; false in functions. */
  const POSTERN_OBSERVED: boolean;
}

// In the bundle of a function, the build has replaced each of these names by true or false. Everywhere else, they
// become globals, and all features are on. Their declarations say what each one switches.
if (typeof POSTERN_MUTATES === "undefined")
  Object.assign(globalThis, {
    POSTERN_MUTATES: true,
    POSTERN_NEEDS: true,
    POSTERN_SINCE: true,
    POSTERN_VARIANTS: true,
    POSTERN_EXACT_INTEGERS: true,
    POSTERN_GROUP: true,
    POSTERN_ASKS: true,
    POSTERN_LEDGER: true,
    POSTERN_EXCEPTIONS: true,
    POSTERN_RECONCILES: true,
    POSTERN_RECORDED: true,
    POSTERN_OBSERVED: true,
  });
