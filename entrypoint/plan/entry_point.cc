// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/entry_point.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/config/shell_text.h"
#include "entrypoint/plan/arguments.h"
#include "entrypoint/plan/transfers.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

std::string without_py(const std::string& name) {
  return name.ends_with(".py") ? name.substr(0, name.size() - 3) : name;
}

/// Python names, joined by single dots.
void check_module(const std::string& module) {
  bool starts = true;  // a name begins here
  bool good = !module.empty();
  for (const char c : module) {
    const auto byte = static_cast<unsigned char>(c);
    good &= c == '.' ? !starts : c == '_' || (starts ? std::isalpha(byte) : std::isalnum(byte));
    starts = c == '.';
  }
  if (good && !starts) return;
  throw smp::ConfigError(
      "entry point \"-m {}\": \"{}\" is no name of a Python module; set hyperparameter "
      "sagemaker_program to -m and a dotted name, such as \"-m package.train\"",
      module, module);
}

/// Segments of letters, digits and ._+-, joined by single slashes, none of them "." or "..", the
/// first without a leading + or -.
void check_name(const std::string& name) {
  constexpr std::string_view kAdvice =
      "set hyperparameter sagemaker_program to a path inside the code folder, of letters, digits "
      "and "
      "._+-/";
  std::string offending;
  for (const char c : name) {
    const bool allowed =
        std::isalnum(static_cast<unsigned char>(c)) || std::strchr("._+-/", c) != nullptr;
    if ((!allowed || c == '\0') && offending.find(c) == std::string::npos) offending += c;
  }
  if (!offending.empty()) {
    throw smp::ConfigError("entry point \"{}\": the characters \"{}\" are not allowed; {}", name,
                           offending, kAdvice);
  }
  const bool of_image = name.front() == '/' && !name.ends_with(".py");
  if (name.front() == '-' || name.front() == '+' || (name.front() == '/' && !of_image)) {
    throw smp::ConfigError("entry point \"{}\": must not start with '{}'; {}", name, name.front(),
                           kAdvice);
  }
  for (const std::string& segment : smp::split(of_image ? name.substr(1) : name, '/')) {
    if (segment.empty() || segment == "." || segment == "..") {
      throw smp::ConfigError(
          "entry point \"{}\": the part \"{}\" between slashes is not allowed; {}", name, segment,
          kAdvice);
    }
  }
}

void refuse_notebook(const std::string& name) {
  if (!name.ends_with(".ipynb")) return;
  const std::string script = name.substr(0, name.rfind('.')) + ".py";
  throw smp::ConfigError(
      "entry point \"{}\": is a notebook, which no interpreter runs as it is; write it as a script "
      "(jupyter nbconvert --to script {}) and set sagemaker_program to {}",
      name, name, script);
}

EntryPointKind kind_of(const JobConfig& job) {
  const std::string& name = job.program.entry_point;
  if (!module_of_entry_point(name).empty()) return EntryPointKind::kModule;
  if (name.front() == '/') return EntryPointKind::kExecutable;
  if (name.ends_with(".sh")) return EntryPointKind::kCommand;
  const ProgramFile& program = job.program.code.program;
  if (program.is_binary && !program.in_image) return EntryPointKind::kExecutable;
  if (job.program.code.has("setup.py")) {
    const bool nested = name.find('/') != std::string::npos;
    const bool runs_as_file =
        nested && job.program.code.entry_point_exists && !job.program.code.entry_point_in_package;
    return runs_as_file ? EntryPointKind::kProgram : EntryPointKind::kPackage;
  }
  if (name.ends_with(".py")) return EntryPointKind::kProgram;
  // Code that is not here yet may have it, and comes first.
  const bool of_image = program.in_image && !choose_code_source(job).is_fetched();
  return of_image ? EntryPointKind::kExecutable : EntryPointKind::kCommand;
}

void check_program(const std::string& name, const ProgramFile& program) {
  if (program.path.empty()) {
    throw smp::ConfigError(
        "entry point \"{}\": no such file in the image; set sagemaker_program to one that is "
        "there, or to a file of the code folder",
        name);
  }
  const std::string path = program.path.string();
  if (!program.is_file) {
    throw smp::ConfigError(
        "entry point \"{}\": {} is a folder; set sagemaker_program to the program in it", name,
        path);
  }
  if (program.is_launcher) {
    throw smp::ConfigError(
        "entry point \"{}\": {} is this launcher; set sagemaker_program to what it is to start",
        name, path);
  }
  if (!program.other_machine.empty()) {
    throw smp::ConfigError(
        "entry point \"{}\": {} was built for {}, which this host is not; build it for this host",
        name, path, program.other_machine);
  }
  if (program.in_image && !program.is_executable) {
    throw smp::ConfigError(
        "entry point \"{}\": {} has no execute permission; give it one where the image is built "
        "(RUN chmod +x {})",
        name, path, path);
  }
}

void check_first_line(const std::string& name, const ProgramFile& program) {
  if (program.first_line_fault.empty()) return;
  throw smp::ConfigError("entry point \"{}\": {}", name, program.first_line_fault);
}

void check_file(const JobConfig& job, EntryPointKind kind) {
  if (kind == EntryPointKind::kExecutable)
    check_program(job.program.entry_point, job.program.code.program);
  const bool has_interpreter =
      kind == EntryPointKind::kExecutable || kind == EntryPointKind::kCommand;
  if (has_interpreter) check_first_line(job.program.entry_point, job.program.code.program);
  if (kind == EntryPointKind::kExecutable && job.program.code.program.in_image) return;
  if (choose_code_source(job).is_fetched()) return;  // checked when it is here
  const std::string code = job.layout.code().string();
  const ProgramFile& program = job.program.code.program;
  if (!program.path.empty() && !program.is_file) check_program(job.program.entry_point, program);
  const bool may_be_installed = kind == EntryPointKind::kPackage || kind == EntryPointKind::kModule;
  if (!job.program.code.entry_point_exists && !may_be_installed) {
    const std::string there =
        job.program.code.entries.empty()
            ? "the folder is empty"
            : fmt::format("there are: {}", fmt::join(job.program.code.entries, ", "));
    const std::string advice =
        job.names_code_folder() || job.program.code.fetched
            ? "correct sagemaker_program"
            : fmt::format(
                  "sagemaker_submit_directory {} is not fetched over code that is there: correct "
                  "sagemaker_program, empty the folder, or set SM_LAUNCH_CODE=replace",
                  job.program.module_dir);
    const bool is_bare = job.program.entry_point.find('/') == std::string::npos;
    throw smp::ConfigError(
        "entry point \"{}\": no such file in {}{}; {}; {}", job.program.entry_point, code,
        is_bare && kind == EntryPointKind::kCommand ? ", and no such program on PATH" : "", there,
        advice);
  }
  const bool is_changed =
      kind == EntryPointKind::kCommand ||
      (kind == EntryPointKind::kExecutable && !job.program.code.program.is_executable);
  if (is_changed && job.program.code.entry_point_escapes) {
    throw smp::ConfigError(
        "entry point \"{}\": is a link to a file outside {}; copy the file there",
        job.program.entry_point, code);
  }
}

}  // namespace

EntryPoint resolve_entry_point(const JobConfig& job, const std::filesystem::path& python) {
  if (job.program.entry_point.empty()) {
    throw smp::ConfigError(
        "no entry point: neither hyperparameter sagemaker_program nor variable SAGEMAKER_PROGRAM "
        "is "
        "set; name the script to run, relative to {}",
        job.layout.code().string());
  }
  const std::string module = module_of_entry_point(job.program.entry_point);
  if (module.empty()) {
    check_name(job.program.entry_point);
    refuse_notebook(job.program.entry_point);
  } else {
    check_module(module);
  }
  EntryPoint entry{.kind = kind_of(job), .name = job.program.entry_point};
  check_file(job, entry.kind);
  const bool has_requirements = job.program.code.has("requirements.txt");
  if (!job.program.code.nested_requirements.empty()) {
    entry.notes.push_back(
        fmt::format("{} is not installed: requirements.txt counts at the top of the code folder",
                    job.program.code.nested_requirements));
  }

  if (!entry.is_python()) {
    const ProgramFile& program = job.program.code.program;
    if (entry.kind == EntryPointKind::kExecutable && program.in_image) {
      entry.name = program.path.string();
      entry.notes.push_back(
          fmt::format("entry point {} is of the image: {}", job.program.entry_point, entry.name));
    } else {
      entry.make_executable = job.layout.code() / entry.name;
    }
    const bool is_for_sh = entry.kind == EntryPointKind::kCommand && program.is_file &&
                           !program.names_interpreter && !entry.name.ends_with(".sh");
    if (is_for_sh) {
      entry.warnings.push_back(fmt::format(
          "entry point \"{}\": no first line #! names its interpreter, so /bin/sh runs it as a "
          "shell script; begin it with one, such as #!/usr/bin/env {}, or call it NAME.sh",
          entry.name, entry.name.ends_with(".R") ? "Rscript" : "python3"));
    }
    if (has_requirements) {
      entry.notes.push_back(fmt::format(
          "requirements.txt is not installed, for the entry point is {}", entry.program_name()));
    }
    return entry;
  }
  if (python.empty()) {
    throw smp::ConfigError(
        "entry point \"{}\": needs Python, and neither python3 nor python is on PATH; set "
        "SM_LAUNCH_PYTHON to an interpreter",
        entry.name);
  }
  Words pip{python.string(), "-m", "pip", "install"};
  const bool has_setup = job.program.code.has("setup.py");
  if (has_setup) pip.push_back(".");
  if (has_requirements) append(pip, {"-r", "requirements.txt"});
  if (has_setup || has_requirements) entry.install.push_back(std::move(pip));
  if (entry.kind == EntryPointKind::kModule) entry.module = module;
  if (entry.kind == EntryPointKind::kPackage) {
    entry.module = without_py(entry.name);
    std::ranges::replace(entry.module, '/', '.');
    entry.notes.push_back(fmt::format(
        "setup.py is there: the code is installed and runs as module {}", entry.module));
  }
  return entry;
}

}  // namespace entrypoint
